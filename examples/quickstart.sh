URL=${URL:-http://127.0.0.1:8080}
curl -sw '\n' -X PUT $URL/v1/catalogues/films -d '{"dim": 3}'
curl -sw '\n' -X PUT $URL/v1/catalogues/films/arms -d '{"arms": [
  {"id": "alien", "features": [0.9, 0.1, 0.3], "metadata": {"year": 1979}},
  {"id": "amelie", "features": [0.1, 0.9, 0.4], "metadata": {"year": 2001}},
  {"id": "brazil", "features": [0.6, 0.5, 0.2], "metadata": {"year": 1985}},
  {"id": "heat", "features": [0.2, 0.1, 0.9], "metadata": {"year": 1995}}]}'
curl -sw '\n' -X PUT $URL/v1/bandits/home -d '{"catalogue": "films", "policy": "sub_ts", "scope": "per_key",
  "context": {"fields": [
    {"name": "device", "kind": "category", "values": ["phone", "tv"]},
    {"name": "hour", "kind": "cycle", "period": 24}]}}'
CHOICE=$(curl -s $URL/v1/bandits/home/choose -d '{"key": "user-42", "context": {"device": "tv", "hour": 21.5}, "seed": 1}') && echo $CHOICE
DECISION=$(echo $CHOICE | grep -o '"decision":"[^"]*"')
curl -sw '\n' "$URL/v1/rewards?wait=applied" -d '{"rewards": [{'$DECISION', "value": 1.0}]}'
curl -sw '\n' $URL/v1/bandits/home/choose -d '{"key": "user-42", "context": {"device": "phone"}, "k": 2, "seed": 1,
  "filter": {"year": {"$gte": 1990}}}'
