"""Small tokenizers of each kind, trained here on a few lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = [
    "The quick brown fox jumps over the lazy dog again and again.",
    "naïve café Ünïted Straße e\u0301te\u0301 привет мир",
    "終わり。始まり 🙂👩\u200d👩\u200d👧 🇪🇺 done",
    *["to the tune of the tale that they told then there to the two"] * 5,
    "# Heading one two ## three - item | a | b | code_x = 1",
]


def byte_level() -> Tokenizer:
    """As GPT-2's: bytes, whose tokens can begin inside a character; offsets without the space before."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """As BERT's: normalized, with special tokens around a text, and cut off at eight tokens."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]"], show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8, pad_id=3, pad_token="[PAD]")
    return tokenizer


def unigram() -> Tokenizer:
    """As SentencePiece's: compatibility forms, a mark for the space before each word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


SAMPLES = {"byte_level": byte_level, "word_piece": word_piece, "unigram": unigram}


@cache
def sample(kind: str) -> str:
    """The text of a tokenizer's JSON file."""
    return SAMPLES[kind]().to_str()


def sample_file(folder: Path, kind: str = "byte_level") -> Path:
    path = folder / "tokenizer.json"
    path.write_text(sample(kind), encoding="utf-8")
    return path
