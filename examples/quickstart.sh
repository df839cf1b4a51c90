URL=${URL:-http://127.0.0.1:8080}
curl -sw '\n' -X PUT $URL/v1/catalogues/household -d '{"dim": 3}'
curl -sw '\n' -X PUT $URL/v1/catalogues/household/arms -d '{"arms": [
  {"id": "kettle", "features": [0.9, 0.1, 0.3], "metadata": {"maker": "Aero", "price": 19, "stock": 4}},
  {"id": "toaster", "features": [0.8, 0.2, 0.3], "metadata": {"maker": "Aero", "price": 15, "stock": 2}},
  {"id": "lamp", "features": [0.1, 0.9, 0.4], "metadata": {"maker": "Lux", "price": 12, "stock": 9}},
  {"id": "radio", "features": [0.6, 0.5, 0.2], "metadata": {"maker": "Sono", "price": 18, "stock": 0}},
  {"id": "clock", "features": [0.2, 0.1, 0.9], "metadata": {"maker": "Sono", "price": 49, "stock": 7}}]}'
curl -so /dev/null -w '%{http_code}\n' -X PUT $URL/v1/bandits/front -d '{"catalogue": "household", "policy": "sub_ts",
  "scope": "per_key", "filter": {"stock": {"$gt": 0}}}'
visit() {
  CHOICE=$(curl -s $URL/v1/bandits/front/choose -d '{"key": "user-42", "seed": '$1', "filter": {"price": {"$lt": 20}}}')
  DECISION=$(echo $CHOICE | grep -o '"decision":"[^"]*"')
  case $CHOICE in *kettle*|*toaster*) BUYS=1;; *) BUYS=0;; esac
  curl -so /dev/null "$URL/v1/rewards?wait=applied" -d '{"rewards": [{'$DECISION', "value": '$BUYS'}]}'
  echo $CHOICE | grep -o '"id":"[^"]*"' | cut -d'"' -f4
}
for i in $(seq 24); do visit $i; done | paste -sd' '
curl -sw '\n' $URL/v1/bandits/front/choose -d '{"key": "user-42", "k": 3, "seed": 1,
  "rules": {"at_most": [{"field": "maker", "count": 1}], "pin": [{"arm": "clock", "place": 2}]}}'
