//! The kinds of lines that have a `MESSAGE_ID` in the journal and a text in its catalog
//! (`programs/packaging/catalog`).

/// The properties of a kind of line.
#[derive(Debug, PartialEq, Eq)]
pub struct LineKind {
    /// `KIND` in the journal; for decisions also the `kind` of `winddown status -o json`.
    pub name: &'static str,
    /// `MESSAGE_ID` in the journal. Never changes.
    pub id: &'static str,
    /// `PHASE` in the journal: the area of the node's operation that it belongs to.
    pub phase: &'static str,
    /// Whether the same line may repeat, so that it is logged at most once a minute. Other kinds
    /// are changes of state, which are always logged.
    pub repeats: bool,
    /// What the line says the state of, if other kinds of lines say it too: a loss and its return.
    pub about: Option<&'static str>,
}

impl LineKind {
    const fn about(self, what: &'static str) -> Self {
        Self { about: Some(what), ..self }
    }
}

const fn change(name: &'static str, phase: &'static str, id: &'static str) -> LineKind {
    LineKind { name, id, phase, repeats: false, about: None }
}

const fn repeats(name: &'static str, phase: &'static str, id: &'static str) -> LineKind {
    LineKind { name, id, phase, repeats: true, about: None }
}

/// All kinds. An ID belongs to its name for ever, and must not be reused.
pub const KINDS: [LineKind; 47] = [
    change("podAdmitted", "admission", "a7fc9cb64b94430cbe90ca3ee92068b3"),
    repeats("podRejected", "admission", "5db063e935d14c23ab8e400a6ca24152"),
    repeats("podWaiting", "admission", "1c4f024957d6438992a9e17f650dddb3"),
    change("podRestarted", "admission", "658255e311de41149777a3af21844f05"),
    change("preemptionStarted", "preemption", "b8d6f8da218f42b4b6b1d3e8138b333c"),
    change("podPreempted", "preemption", "68e03e2485c842468c30351957affef6"),
    repeats("evictionThresholdMet", "eviction", "2335712d6d5a4779bd57090dece277b1"),
    change("evictionStarted", "eviction", "a8eb3731099142e5b71015bb8ac02a29"),
    change("podEvicted", "eviction", "7e6cbf8e7a1049f2b52359b6564261de"),
    repeats("evictionFailed", "eviction", "cfb20bf0add44c3aa3639bb64eee6ac0"),
    repeats("evictionShadowed", "eviction", "259a6c2b97bd4804a33a9b9e59643664"),
    change("nodePressure", "eviction", "7949e24637934d45924727ca071937e4"),
    change("orphanFound", "running", "801b62d32a534f2c8724f3d019c14276"),
    change("fieldsIgnored", "running", "c5b1d6a05f0e4a5c9d0e7f4a3a3f2b61"),
    change("containerExited", "running", "07f6b3eb1f3c44a5848a17580ec9f776"),
    repeats("syncFailed", "running", "78909df8b3fa4c98833120b4480debe2"),
    change("killRequested", "termination", "f1d236659f5749d18e52229b3cc51ac9"),
    change("deadlineExceeded", "termination", "3a0c9d0f6c9b4b56a7c2fd1d2f4c8e17"),
    change("pluginChose", "termination", "53d52c566d234a98866c52d8a47f6199"),
    change("podStopped", "termination", "2a3e2ee16eb344bfb1ca40e817938cae"),
    repeats("exceededGracePeriod", "termination", "ed1581e440b84c2aab8bab29bb5e9c4f"),
    change("shutdownStarted", "shutdown", "4ee9f1dc90124ae39cd6e288390214fb"),
    change("shutdownResumed", "shutdown", "ac65329e20f94cad8b6b4a23fe670408"),
    change("groupStarted", "shutdown", "c614cc18c4e046b6b5a067a6af944769"),
    change("groupFinished", "shutdown", "e58e6952880d43cb8a9375f59af02b9b"),
    change("shutdownCancelled", "shutdown", "baf2e323b2cf4fedb86b5656beae9062"),
    change("shutdownFinished", "shutdown", "1967f802f2c24372a0483fb3e2d109d0"),
    change("pluginWorked", "shutdown", "c8ac2a1a509844d198f17d645e8fc296"),
    change("lastBoot", "boot", "1e6d8efc63434b7f8cfaea26a7082262"),
    change("other", "running", "e756f7cc1d804058886b4ad0ccd650be"),
    // Not decisions, but what the node's protection depends on.
    change("lockTaken", "lock", "248fe31b37a949a3915b5ec57fafa0ed").about("lock"),
    change("lockLost", "lock", "0a140389e82a478686c9e8e22bd8e505").about("lock"),
    change("lockReleased", "lock", "bfed0372052a452991adfda851006e80").about("lock"),
    repeats("lockMissing", "lock", "5dd749812a7c4d59a7afc4e9e07ae6c7").about("lock"),
    repeats("delayTooShort", "lock", "eddc7b8eae80466189521d94ef5dfe84"),
    repeats("signalIgnored", "lock", "624eb3fcc9384bde921e660d71308f94"),
    change("noticeReceived", "notice", "6841d08a747c4a27951812700f2c16f8"),
    change("noticeWithdrawn", "notice", "9eace80e8cf14e94a62016d5916f81c0"),
    repeats("manifestProblem", "manifests", "9d94cb710b8e49df97342cc10f61d8da"),
    repeats("runtimeNotReady", "runtime", "75aa9af9cf0944f48e64d7c7d54bbd77").about("runtime"),
    repeats("runtimeReady", "runtime", "f1a60304554a45e096bd3bdc9c235430").about("runtime"),
    repeats("apiUnreachable", "cluster", "04724c23ab314752bd69e87a08d16ded").about("API server"),
    repeats("apiReachable", "cluster", "924855bef8ae4d72898e265445b15662").about("API server"),
    repeats("clockSkew", "cluster", "90bd6477f5fc4325b88fb80c4678cad9"),
    repeats("spoolNotWritten", "cluster", "96a7dae2c5fe4b7da78b2e02cc78535c"),
    repeats("statusesNotSent", "cluster", "668598be753d402a944a50f19417a2e3"),
    repeats("reportLost", "shutdown", "25d08e4caf0c4700b76928ac888361bd"),
];

pub(super) fn named(name: &str) -> Option<&'static LineKind> {
    KINDS.iter().find(|kind| kind.name == name)
}
