"""``/api/generations``: what generations there are, and what an operator does to them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from tessera.assembly.assembly import assembly_named
from tessera.errors import PolicyError
from tessera.generations import contraction
from tessera.generations import cutover as moves
from tessera.generations.bootstrap import read_registry
from tessera.generations.cases import parse_cases
from tessera.generations.description import described, detail
from tessera.generations.operations import Operator
from tessera.generations.proofs import compare_candidate, verify_candidate
from tessera.generations.rebuild import plan_rebuild, rebuild
from tessera.generations.registry import Generation
from tessera.generations.transitions import known
from tessera.http.access import Monitor
from tessera.http.access import Operator as OperatorCaller
from tessera.http.lifecycle import (
    CompareRequest,
    CreateRequest,
    CutoverRequest,
    GenerationBody,
    GenerationDetail,
    MoveBody,
    RateRequest,
    RebuildRequest,
    RemovalBody,
    RemovalRequest,
    RollbackRequest,
    VerifyRequest,
    WhyRequest,
)
from tessera.http.schema import errors
from tessera.http.services import Services, Serving
from tessera.policies import BUILT_IN, ChunkPolicy, parse_policy
from tessera.shards.status import read_status

router = APIRouter(prefix="/api/generations", tags=["generations"])

REFUSALS = errors(401, 403, 404, 409, 422, 503)


async def _operator(request: Request, services: Serving, caller: OperatorCaller) -> Operator:
    client = request.client.host if request.client is not None else "unknown"
    return Operator(services.store, services.settings, f"{caller.name}@{client}", services.control)


Hands = Annotated[Operator, Depends(_operator)]


@router.get("", response_model=list[GenerationBody], responses=errors(401, 403, 503))
async def list_all(services: Serving, caller: Monitor) -> list[dict[str, Any]]:
    """All generations ever made, the oldest first."""
    if (await services.store.control())[1] is None:
        return []
    registry = await read_registry(services.store)
    return described(registry, await read_status(services.store), services.now_ms())


@router.get("/{name}", response_model=GenerationDetail, responses=errors(401, 403, 404, 503))
async def show(name: str, services: Serving, caller: Monitor) -> dict[str, Any]:
    """One generation: contract, shards, evidence, and every step of its life."""
    return await _shown(services, name)


@router.post("", status_code=201, response_model=GenerationDetail, responses=REFUSALS)
async def create(body: CreateRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Create a generation: every shard begins to write it, and to backfill what it holds already."""
    return await _after(services, await operator.create(_policy(body), body.name, body.rate, body.analyzer))


@router.post("/rollback", response_model=MoveBody, responses=REFUSALS)
async def rollback(body: RollbackRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Serve the previous release again, at once."""
    if body.dry_run:
        return _move(await moves.plan_rollback(operator), done=False)
    move = await moves.rollback(operator, body.why)
    services.forget_overview()
    return _move(move, done=True)


@router.post("/rebuild", responses=REFUSALS)
async def rebuild_from_log(body: RebuildRequest, services: Serving, operator: Hands) -> list[dict[str, Any]]:
    """Rebuild everything from the log, for when Redis was lost: all shards are emptied and read again."""
    plan = await plan_rebuild(operator)
    if not body.dry_run:
        await rebuild(operator, plan, confirmed=body.confirmed, lose=body.lose)
        services.forget_overview()
    return [each.to_value() for each in plan]


@router.post("/{name}/pause", response_model=GenerationDetail, responses=REFUSALS)
async def pause(name: str, services: Serving, operator: Hands) -> dict[str, Any]:
    """Pause the backfill; live changes go on being written."""
    return await _after(services, await operator.pause(name))


@router.post("/{name}/resume", response_model=GenerationDetail, responses=REFUSALS)
async def resume(name: str, services: Serving, operator: Hands) -> dict[str, Any]:
    """Resume a paused backfill."""
    return await _after(services, await operator.resume(name))


@router.post("/{name}/rate", response_model=GenerationDetail, responses=REFUSALS)
async def rate(name: str, body: RateRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Bound the backfill, or take the bound away."""
    return await _after(services, await operator.set_rate(name, body.rate or None))


@router.post("/{name}/hold", response_model=GenerationDetail, responses=REFUSALS)
async def hold(name: str, body: WhyRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Keep the generation from being contracted or abandoned."""
    return await _after(services, await operator.hold(name, body.why))


@router.post("/{name}/release-hold", response_model=GenerationDetail, responses=REFUSALS)
async def release_hold(name: str, services: Serving, operator: Hands) -> dict[str, Any]:
    """Take the hold off."""
    return await _after(services, await operator.release_hold(name))


@router.post("/{name}/verify", responses=REFUSALS)
async def verify(name: str, body: VerifyRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Prove that it holds what the serving generation holds."""
    report = await verify_candidate(operator, name, sample=body.sample, seed=body.seed)
    services.forget_overview()
    return report.to_value()


@router.post("/{name}/compare", responses=REFUSALS)
async def compare(name: str, body: CompareRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Run query cases on the generation and on ``baseline`` (left out: the serving one)."""
    baseline = body.baseline or (await read_registry(services.store)).serving.name
    cases = parse_cases(json.dumps(body.cases), "cases")
    evidence, recorded = await compare_candidate(
        operator, services.searcher, baseline, name, cases, expires_s=body.expires_s
    )
    services.forget_overview()
    return {**evidence.to_value(), "recorded": recorded}


@router.post("/{name}/cutover", response_model=MoveBody, responses=REFUSALS)
async def cutover(name: str, body: CutoverRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Serve the generation, once all checks passed and every searcher has loaded it."""
    waiver = moves.AskedWaiver(body.waive, body.expires_s) if body.waive is not None else None
    assembly = assembly_named(body.assembly) if body.assembly is not None else None
    if body.dry_run:
        return _move(await moves.plan_cutover(operator, name, waiver, body.retention_s, assembly), done=False)
    move = await moves.cutover(operator, name, waiver, body.retention_s, assembly)
    services.forget_overview()
    return _move(move, done=True)


@router.post("/{name}/contract", response_model=RemovalBody, responses=REFUSALS)
async def contract(name: str, body: RemovalRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Remove a retired generation. Ask again until it is done."""
    removal = await contraction.contract(operator, name, body.wait_s)
    services.forget_overview()
    return asdict(removal) | {"done": removal.done}


@router.post("/{name}/abandon", response_model=RemovalBody, responses=REFUSALS)
async def abandon(name: str, body: RemovalRequest, services: Serving, operator: Hands) -> dict[str, Any]:
    """Give up a generation that was never to be served, and remove it. Ask again until it is done."""
    removal = await contraction.abandon(operator, name, body.why, body.wait_s)
    services.forget_overview()
    return asdict(removal) | {"done": removal.done}


def _policy(body: CreateRequest) -> ChunkPolicy:
    """The policy asked for. A path is not taken: it would be one of this machine's files."""
    if body.policy_toml is not None:
        return parse_policy(body.policy_toml, "policy_toml")
    if body.policy not in BUILT_IN:
        raise PolicyError(
            f"policy {str(body.policy)[:100]!r} is not built in ({', '.join(BUILT_IN)}): give the text of "
            "another one as policy_toml"
        )
    return BUILT_IN[body.policy]


async def _after(services: Services, generation: Generation) -> dict[str, Any]:
    services.forget_overview()
    return await _shown(services, generation.name)


async def _shown(services: Services, name: str) -> dict[str, Any]:
    registry = await read_registry(services.store)
    index = await read_status(services.store)
    return detail(known(registry, name), registry, index, services.now_ms())


def _move(move: moves.Move, *, done: bool) -> dict[str, Any]:
    return move.to_value() | {"done": done}
