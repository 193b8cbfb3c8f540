# What the machine that programs are for is called elsewhere; $architecture is empty for one of which only its own packages
# can be made. Sourced, with $machine as `uname -m` says it, from the repository's root.
case $machine in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture= ;;
esac
# The tools that read and change its programs.
tools=
[ "$machine" = "$(uname -m)" ] || tools=$machine-linux-gnu-
[ -n "$architecture" ] || [ -z "$tools" ] || die "machine '$machine': write x86_64 or aarch64"
