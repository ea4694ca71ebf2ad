"""What Tessera asks of a Kafka broker besides the stream: producing, topics, and a look into a log."""
