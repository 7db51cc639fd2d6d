#!/usr/bin/env bash
# The whole acknowledgement flow with curl, checked step by step. Ends with 0 when every answer is as it should be.
#
#   docker compose -f examples/compose.yaml up -d --wait      (or: ackwise serve --pushpop-port 8000)
#   bash examples/test_acknowledgement_flow.sh [URL]          (http://localhost:8000 unless given)
set -euo pipefail

base="${1:-${PUSHPOP_URL:-http://localhost:8000}}"
queue="flow-$$-$RANDOM"
status="" body="" failed=0

call() { # METHOD PATH [BODY]: sets $status and $body
    local answer
    answer=$(curl --silent --show-error --max-time 30 --write-out '\n%{http_code}' --request "$1" "$base/queue/$queue$2" \
        ${3:+--data "$3"})
    status="${answer##*$'\n'}" body="${answer%$'\n'*}"
}

expect() { # WHAT STATUS TEXT...: the last answer has this status and contains each of these texts
    local what="$1" wanted="$2" text
    shift 2
    if [[ "$status" != "$wanted" ]]; then
        echo "FAILED  $what: answered $status, not $wanted: $body"
        failed=1
        return
    fi
    for text in "$@"; do
        if [[ "$body" != *"$text"* ]]; then
            echo "FAILED  $what: no $text in $body"
            failed=1
            return
        fi
    done
    echo "ok      $what"
}

lock_id() { sed -n 's/.*"lock_id":"\([^"]*\)".*/\1/p' <<<"$body"; }

call POST /push '{"item": {"task_id": 123, "action": "send_email"}}'
expect "push an item" 200 '"success":true'
call POST /push '{"items": [{"item": {"task_id": 124}, "priority": 2}, {"item": {"task_id": 125}, "priority": 1}]}'
expect "push two with priorities" 200 '"items_pushed":2'

call POST '/pop?require_ack=true'
expect "pop with acknowledgement" 200 '"items":[{"task_id": 123, "action": "send_email"}]' '"locked":true' '"lock_id":"'
first=$(lock_id)
call POST /pop
expect "a second pop is locked out" 423 'Queue is locked pending acknowledgement' '"lock_expires_at":'
call POST '/pop?require_ack=true'
expect "and so is one with acknowledgement" 423 'Queue is locked pending acknowledgement'
call POST /acknowledge '{"lock_id": "somebody-elses"}'
expect "a wrong lock id is refused" 400 'Invalid lock_id'
call POST /acknowledge '{}'
expect "a missing lock id is refused" 400 'lock_id is required'
call POST /acknowledge "{\"lock_id\": \"$first\"}"
expect "acknowledge" 200 '"items_acknowledged":1'
call POST /acknowledge "{\"lock_id\": \"$first\"}"
expect "acknowledging twice finds no lock" 404 'No active lock found'

call POST '/pop?require_ack=true&ttl_seconds=1'
expect "pop with a short lock" 200 '{"task_id": 125}'
late=$(lock_id)
sleep 1.1
call POST /acknowledge "{\"lock_id\": \"$late\"}"
expect "acknowledging too late" 410 '"error_code":"LOCK_EXPIRED"'
call GET ''
expect "the item is back in its priority" 200 '"depth":{"1":1,"2":1}' '"lock":null' '"expired_locks":1'
call POST '/pop?require_ack=true&count=10'
expect "the next pop has it again, in order" 200 '"items":[{"task_id": 125},{"task_id": 124}]'
call POST /acknowledge "{\"lock_id\": \"$(lock_id)\"}"
expect "one acknowledgement for both" 200 '"items_acknowledged":2'
call POST '/pop?require_ack=true'
expect "an empty queue is not locked" 200 '"items":[]' '"locked":false'
call POST /pop
expect "a plain pop of it" 200 '{"items":[],"count":0}'

if ((failed)); then
    echo "the acknowledgement flow is broken"
    exit 1
fi
echo "the acknowledgement flow works"
