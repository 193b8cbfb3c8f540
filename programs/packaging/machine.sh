# What the machine that programs are for is called elsewhere. Sourced, with $machine as `uname -m` says it, from the
# repository's root.
case $machine in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) die "machine '$machine': write x86_64 or aarch64" ;;
esac
# The tools that read and change its programs.
tools=
[ "$machine" = "$(uname -m)" ] || tools=$machine-linux-gnu-
