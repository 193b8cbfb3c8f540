# Sourced by what makes packages: who answers for them, and where their sources are, from the one variable
#
#   WINDDOWN_MAINTAINER='Name <address> https://repository'
#
# Sets maintainer ("Name <address>") and sources (the address of the repository); both are empty where the variable is.

maintainer= sources=
case ${WINDDOWN_MAINTAINER:-} in
'') ;;
?*' <'?*@?*'> https://'?*)
    maintainer=${WINDDOWN_MAINTAINER% https://*}
    sources=https://${WINDDOWN_MAINTAINER##* https://}
    ;;
*)
    echo "WINDDOWN_MAINTAINER is '$WINDDOWN_MAINTAINER': write it as 'Name <address> https://repository'" >&2
    exit 1
    ;;
esac
