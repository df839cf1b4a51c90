URL=${URL:-http://127.0.0.1:8080}
curl -sw '\n' -X PUT $URL/v1/catalogues/shop -d '{"dim": 3}'
curl -sw '\n' -X PUT $URL/v1/catalogues/shop/arms -d '{"arms": [
  {"id": "kettle", "features": [0.9, 0.1, 0.3], "metadata": {"maker": "Aero", "price": 19, "stock": 4, "manual": ["de", "en"]}},
  {"id": "toaster", "features": [0.8, 0.2, 0.3], "metadata": {"maker": "Aero", "price": 15, "stock": 2, "manual": ["de"]}},
  {"id": "lamp", "features": [0.1, 0.9, 0.4], "metadata": {"maker": "Lux", "price": 12, "stock": 9, "manual": ["de", "fr"]}},
  {"id": "radio", "features": [0.6, 0.5, 0.2], "metadata": {"maker": "Sono", "price": 18, "stock": 0, "manual": ["de"]}},
  {"id": "clock", "features": [0.2, 0.1, 0.9], "metadata": {"maker": "Sono", "price": 49, "stock": 7, "manual": ["de"]}}]}'
curl -sw '\n' -X PUT $URL/v1/bandits/front -d '{"catalogue": "shop", "policy": "sub_ts", "scope": "per_key",
  "filter": {"stock": {"$gt": 0}},
  "context": {"fields": [
    {"name": "device", "kind": "category", "values": ["phone", "desk"]},
    {"name": "hour", "kind": "cycle", "period": 24}]}}'
REQUEST='{"key": "user-42", "context": {"device": "phone", "hour": 21.5}, "filter": {"manual": "de", "price": {"$lt": 20}}, "seed": 1}'
CHOICE=$(curl -s $URL/v1/bandits/front/choose -d "$REQUEST") && echo $CHOICE
DECISION=$(echo $CHOICE | grep -o '"decision":"[^"]*"')
curl -sw '\n' "$URL/v1/rewards?wait=applied" -d '{"rewards": [{'$DECISION', "value": 1.0}]}'
curl -sw '\n' $URL/v1/bandits/front/choose -d '{"key": "user-42", "context": {"device": "desk"}, "k": 3, "seed": 1,
  "filter": {"manual": "de", "price": {"$lt": 20}},
  "rules": {"at_most": [{"field": "maker", "count": 1}], "pin": [{"arm": "clock", "place": 2}]}}'
