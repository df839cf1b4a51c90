#!/usr/bin/env bash
# Build, start, try and remove the services of docker-compose.yml.
set -euo pipefail
cd "$(dirname "$0")/.."
docker build --quiet --tag shortlist:3.0.0 .
made=$(docker run --rm shortlist:3.0.0 key smoke --scopes admin)
export SHORTLIST_API_KEYS=${made##*: }
export SHORTLIST_REDIS_PASSWORD=$(openssl rand -hex 32)
key=$(head -1 <<<"$made")
trap 'docker compose down --volumes' EXIT
docker compose up --detach --wait
deploy/smoke_calls.sh "${key##*: }" http://127.0.0.1:8081 http://127.0.0.1:8082
curl --silent --show-error --fail http://127.0.0.1:8080/readyz
