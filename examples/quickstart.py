from shortlist_client import Client

client = Client("http://127.0.0.1:8080")
client.put_catalogue("offers", dim=2)
yours = {"share": 1, "serve": "candidates"}
client.put_bandit("beside", catalogue="offers", policy="sub_ts", log={}, holdout=yours)
found = [{"id": "toaster", "features": [0.8, 0.2]}, {"id": "lamp", "features": [0.1, 0.9]}]
choice = client.choose("beside", k=2, event_id="visit-1", candidates=found)  # in your order
client.reward({"bandit": "beside", "event_id": "visit-1"}, 1.0)
client.patch_bandit("beside", holdout={"share": 0.1})
