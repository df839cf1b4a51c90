from shortlist_client import Client

client = Client("http://127.0.0.1:8080")
client.put_catalogue("films", dim=3)
client.upsert_arms(
    "films", [[0.9, 0.1, 0.3], [0.1, 0.9, 0.4], [0.2, 0.1, 0.9]], ids=["alien", "amelie", "heat"]
)
client.put_bandit("home", catalogue="films", policy="sub_ts", scope="per_key")
choice = client.choose("home", key="user-42")
client.reward(choice.decision, value=1.0)
