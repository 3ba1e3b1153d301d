# Runs a server with slow and busy requests, a client against it, and looks at what they said. try.sh SERVER CLIENT FOLDER
set -u
server=$1 client=$2 folder=$3
rm -rf "$folder" && mkdir -p "$folder" || exit 1
fail() { echo "$1"; cat "$folder"/*; exit 1; }

"$server" --port 0 --slow-every 7 --slow-ms 2000 --busy-every 5 > "$folder/server.txt" 2> "$folder/server.err" &
pid=$!
trap 'kill -TERM $pid 2> /dev/null' EXIT
waited=0
until grep -qs '^listening' "$folder/server.txt"; do
    sleep 0.05
    waited=$((waited + 1))
    [ $waited -lt 400 ] || fail "the server does not listen"
done
port=$(sed -n 's/^listening on 127.0.0.1://p' "$folder/server.txt")

"$client" --port "$port" --requests 20 --timeout-ms 300 > "$folder/client.txt" 2> "$folder/client.err" || fail "the client failed"
[ "$(grep -c '^{"request":.*}$' "$folder/client.txt")" -eq 20 ] || fail "not one record for each request"
grep -q '"ended":"ok"' "$folder/client.txt" || fail "no request was answered"
grep -q '"ended":"deadline"' "$folder/client.txt" || fail "no slow request ended at its deadline"
grep -q '"ended":"ok","attempts":2' "$folder/client.txt" || fail "no busy answer was asked again"
# Not one slow request was worked on to its end.
grep -q '"ended":"ok".*"spent_us":[2-9][0-9]\{6\}' "$folder/server.txt" && fail "the server worked for a caller who had left"
grep -Eq '"ended":"(deadline|requested)".*"cancelled":\["store"\]' "$folder/server.txt" || fail "the server cancelled nothing"

kill -TERM $pid
wait $pid || fail "the server ended badly"
trap - EXIT
[ ! -s "$folder/server.err" ] || fail "the server complained"

"$client" --port "$port" --requests 2 --timeout-ms 20 > "$folder/nobody.txt" 2> "$folder/nobody.err"
[ "$(grep -c '"ended":' "$folder/nobody.txt")" -eq 2 ] || fail "no record without a server"
"$client" --port 99999 > "$folder/wrong.txt" 2> "$folder/wrong.err"
[ $? -eq 2 ] && [ "$(wc -l < "$folder/wrong.err")" -eq 1 ] || fail "a wrong port is not refused in one line"
echo ok
