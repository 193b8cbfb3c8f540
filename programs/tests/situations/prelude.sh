# What the situations of this folder are written in. Nothing of the machine's own configuration and state is visible, and
# nothing outlives the script.
mount --make-rprivate /
mkdir -p etc/ssl
for file in passwd group nsswitch.conf ld.so.cache os-release machine-id; do
    [ ! -e /etc/$file ] || cp /etc/$file etc/
done
cp -rL /etc/ssl/certs etc/ssl/ 2>/dev/null
mount --bind etc /etc
for place in /run /var/lib /var/log /usr/lib/systemd/system; do mount -t tmpfs tmpfs $place; done
mkdir -p /etc/winddown/pods /run/winddown /var/lib/winddown /var/log/winddown

winddown() { "$WINDDOWN" "$@"; }

# Read by the test, which has started this login manager.
logind() { :; }

# The same for a container runtime, at $PWD/cri.sock.
cri() { :; }

# The configuration: standard input, below what every file needs.
config() {
    {
        printf 'apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nnodeName: n1\n'
        # Whatever this machine is short of is of no interest here.
        printf 'evictionHard: {memory.available: 1Ki}\n'
        cat
    } >/etc/winddown/config.yaml
}

# A manifest NAME.yaml: standard input below the container's name; further arguments are lines of the pod.
manifest() {
    {
        printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  hostNetwork: true\n' "$1"
        [ $# = 1 ] || printf '  %s\n' "${@:2}"
        printf '  containers:\n  - name: main\n'
        cat
    } >"/etc/winddown/pods/$1.yaml"
}

# A pod that does its work.
works() { echo '    command: [sleep, "1000"]' | manifest web "$@"; }

# Waits a little, a minute in all.
left=1200
patience() {
    left=$((left - 1))
    [ $left -gt 0 ] || { echo "waited for too long"; winddown status; cat agent.log; exit 99; }
    sleep 0.05
}

# An agent in the background.
agent() {
    [ -e /etc/winddown/config.yaml ] || config </dev/null
    "${AGENT:-${WINDDOWN}d}" </dev/null >>agent.log 2>&1 &
    agent=$!
    until_status '^lock *\(held\|none\)'
}

# Waits until the status has these words.
until_status() { until winddown status 2>&1 | grep -q -e "$1"; do patience; done; }

# What passes and differs each time is a letter, and as wide however much has passed.
settled() {
    sed -E \
        -e 's/up [0-9]+[ms][0-9s]*/up Ns/' -e 's/(process|pid) [0-9]+/\1 N/g' -e 's/for [0-9]+[ms][0-9s]*(;|:|$)/for Ns\1/' \
        -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}Z?/TIME/g' \
        -e 's/_[0-9a-f]{32}/_UID/g' -e 's/^(UID: +)[0-9a-f]{32}/\1UID/' -e 's/pods\/[0-9a-f]{32}/pods\/UID/g' -e 's/(drain-[0-9]+)-[0-9TZ.]+-[0-9a-f]+/\1-TIME/' \
        -e 's/ +AGE$/  AGE/' -e 's/^(.*\/[0-9]+ +[0-9]+) +[0-9]+[ms][0-9s]*$/\1   Ns/' \
        -e 's/(CrashLoopBackOff +[0-9]+\/[0-9]+) +[0-9]+ /\1         N /' -e 's/(main\/)[0-9]+\.log/\1N.log/' -e 's/^waiting for .*, [0-9]+s$//' \
        -e 's/[0-9.]+ ([KMGT]i)?B free, [0-9]+ inodes/N free, N inodes/' \
        -e 's/(res: [a-z]+, q: )[0-9]+/\1N/' -e 's/^ +[0-9]+[ms][0-9s]*  ([^ ]+ rejected, )/      Ns  \1/'
}

# Of doctor the findings of these checks, each with its severity.
found() {
    local line level id severity='' shows=''
    while IFS= read -r line; do
        level=${line:0:9} id=${line:9}
        id=${id%% *}
        if [ -z "$line" ]; then
            shows=''
            continue
        elif [[ -n $id && $id != @(seen|why|fix|hint) ]]; then
            [ -z "${level// /}" ] || severity=$level
            [[ " $* " == *" $id "* ]] && shows=1 || shows=''
            line=$severity${line:9}
        fi
        [ -z "$shows" ] || printf '%s\n' "$line"
    done
}

# What a person sees: the status without its decisions, and of doctor the findings of these checks.
seen() {
    echo '$ winddown status'
    printf '%s\n' "$(winddown status 2>&1 | sed '/^LAST DECISIONS/,$d' | settled | sed '/./,$!d')"
    echo
    echo '$ winddown doctor'
    winddown doctor 2>&1 | settled | found "$@"
}
