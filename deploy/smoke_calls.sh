#!/usr/bin/env bash
# smoke_calls.sh KEY URL URL: what one replica is told the other one knows, and workers apply the reward.
set -euo pipefail
key=$1 one=$2 other=$3

call() { curl --silent --show-error --fail-with-body --max-time 20 -H "Authorization: Bearer $key" "$@"; }

call -X PUT "$one/v1/catalogues/smoke" -d '{"dim": 2}' >/dev/null
call -X PUT "$one/v1/catalogues/smoke/arms" -d '{"arms": [{"id": "a", "features": [1, 2]}]}' >/dev/null
call -X PUT "$one/v1/bandits/smoke" -d '{"catalogue": "smoke", "policy": "sub_ts"}' >/dev/null
for attempt in {1..50}; do
  choice=$(call -X POST "$other/v1/bandits/smoke/choose" -d '{}') && break
  [ "$attempt" != 50 ] && sleep 0.2
done
decision=$(sed -E 's/.*"decision":"([^"]+)".*/\1/' <<<"$choice")
call "$one/v1/rewards?wait=applied" -d "{\"rewards\": [{\"decision\": \"$decision\", \"value\": 1}]}" | grep -q '"accepted":1'
call "$one/v1/bandits/smoke/learners/_global" | grep -q '"observations":1'
call -X DELETE "$one/v1/bandits/smoke"
call -X DELETE "$one/v1/catalogues/smoke"
echo "all is well"
