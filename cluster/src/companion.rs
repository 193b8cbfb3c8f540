//! Beside a kubelet: it runs the pods, this agent ends them.
