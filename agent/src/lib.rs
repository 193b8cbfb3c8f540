//! The winddown agent: configuration, pod manifests, the control socket, the commands, and the
//! wiring of the controllers to the systems they drive.
