# What the cases of this folder are written in. Each runs in an empty directory, $DIR.
winddown() { "$WINDDOWN" "$@"; }
winddownd() { "${WINDDOWN}d" "$@"; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$WINDDOWN" "$@"; }

# The configuration: standard input, below what every file needs.
config() {
    mkdir -p etc/winddown/pods
    {
        printf 'apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nnodeName: n1\n'
        # Whatever this machine is short of is of no interest here.
        printf 'evictionHard: {memory.available: 1Ki}\n'
        cat
    } >etc/winddown/config.yaml
}

# A manifest NAME.yaml: standard input below the container's name.
manifest() {
    mkdir -p etc/winddown/pods
    {
        printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n' "$1"
        printf '  hostNetwork: true\n  containers:\n  - name: main\n'
        cat
    } >"etc/winddown/pods/$1.yaml"
}

# Waits a little, a minute in all.
left=1200
patience() {
    left=$((left - 1))
    [ $left -gt 0 ] || { echo "waited for too long"; cat agent.log; exit 99; }
    sleep 0.05
}

# An agent in the background. Its log is kept.
agent() {
    [ -e etc/winddown/config.yaml ] || config </dev/null
    "${WINDDOWN}d" --root "$DIR" </dev/null >agent.log 2>&1 &
    agent=$!
    SOCKET=$DIR/run/winddown/winddown.sock
    until [ -S "$SOCKET" ] || ! kill -0 $agent 2>/dev/null; do patience; done
    export WINDDOWN_SOCKET="$SOCKET"
}

# The first line of the agent's log with these words, when it comes; its time reclaimed.
logged() {
    until line=$(grep -m1 -e "$1" agent.log); do
        kill -0 $agent 2>/dev/null || { cat agent.log; return; }
        patience
    done
    printf '%s\n' "$line" | sed 's/^ *[0-9.]*s *//'
}

# A line of the agent's status, when it comes.
shown() {
    until line=$(winddown status 2>&1 | grep -A1 -m1 -e "$1"); do patience; done
    printf '%s\n' "$line"
}

ended() {
    [ -z "${agent:-}" ] || { kill -9 "$agent"; wait "$agent"; } 2>/dev/null
}
trap ended EXIT
