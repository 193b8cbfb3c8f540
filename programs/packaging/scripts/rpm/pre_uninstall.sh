# 0: the last version goes. An upgrade does not stop the agent.
if [ "$1" = 0 ]; then
    tell_of_running_pods
    tell_of_kubelet
    systemctl --quiet --no-reload disable --now winddown.service || true
    systemctl --quiet stop winddown-order.target || true
fi
