//! The cases, one for each promise.

mod crashes;
mod ends;
mod next_agent;
mod remains;
mod starts;
mod stops;

use tokio::time::timeout;

use crate::promise::cases;
use crate::steps::PATIENCE;
use crate::{BrokenPromise, RuntimeUnderTest};

/// Hands the names of all cases to a macro: `for_each_case! { [then] words }` becomes
/// `then! { words => first_case second_case … }`. With it a suite with its own way to set up a test, or to skip it,
/// runs the same cases.
#[macro_export]
macro_rules! for_each_case {
    ([$($then:tt)*] $($words:tt)*) => {
        $($then)* ! { $($words)* =>
            a_sync_answers_with_the_state_afterwards
            what_runs_is_not_started_again
            a_sync_that_was_dropped_starts_nothing_after_the_stop
            a_pod_that_was_stopped_starts_again
            calls_for_one_pod_do_not_wait_for_another
            a_crashed_container_is_restarted
            a_restart_is_counted
            a_container_in_back_off_waits
            an_exit_is_shown_with_its_code
            an_exit_has_its_times
            an_exit_is_announced
            a_pod_that_has_ended_for_good_is_not_started_again
            a_container_gets_sigterm_and_its_time
            a_container_that_ignores_sigterm_keeps_its_whole_grace
            a_container_that_outlasts_its_grace_is_killed
            a_grace_that_is_shortened_holds_at_once
            a_stop_does_not_wait_for_the_rest_of_the_grace
            nothing_runs_when_a_stop_has_resolved
            a_stopped_pod_can_be_stopped_again
            a_pod_can_be_stopped_by_its_uid_alone
            an_abandoned_stop_is_joined_by_the_next
            an_unknown_pod_is_stopped_and_empty
            a_stopped_pod_is_listed_until_it_is_forgotten
            a_clean_up_keeps_how_the_pod_exited
            a_clean_up_can_be_repeated
            a_forgotten_pod_is_gone
            a_pod_that_runs_is_not_forgotten
            the_next_agent_finds_what_runs
            a_runtime_that_is_away_says_so
        }
    };
}

cases! {
    a_sync_answers_with_the_state_afterwards, "sync_pod",
        "Returns the state afterwards.",
        starts::answers;
    what_runs_is_not_started_again, "sync_pod",
        "What runs is left as it is.",
        starts::once;
    a_sync_that_was_dropped_starts_nothing_after_the_stop, "sync_pod",
        "Must be cancel-safe: the future is dropped as soon as the pod is requested to terminate, and `stop_pod` then stops whatever was started.",
        starts::dropped;
    a_pod_that_was_stopped_starts_again, "sync_pod",
        "A pod that was stopped and may be restarted starts again, without a backoff.",
        starts::again;
    calls_for_one_pod_do_not_wait_for_another, "sync_pod",
        "Every other call may come at any time, beside a step of the same pod too, and calls for different pods run in parallel.",
        starts::in_parallel;
    a_crashed_container_is_restarted, "sync_pod",
        "Starts what should run and does not, and restarts what may be restarted and whose backoff is over.",
        crashes::restarted;
    a_restart_is_counted, "pod_status",
        "Each restart adds one to `restart_count`, and `last_exit` has how the run before exited.",
        crashes::counted;
    a_container_in_back_off_waits, "pod_status",
        "While a container waits for its restart backoff it is `Waiting` and has that exit as `last_exit`",
        crashes::waits;
    an_exit_is_shown_with_its_code, "pod_status",
        "A container that has exited stays in it, with how it exited, until `forget_pod`.",
        ends::with_code;
    an_exit_has_its_times, "pod_status",
        "An exit that was observed has `started_at` and `finished_at`",
        ends::with_times;
    an_exit_is_announced, "changes",
        "UIDs of pods that changed by themselves (a container exited, became ready).",
        ends::announced;
    a_pod_that_has_ended_for_good_is_not_started_again, "sync_pod",
        "Starts what should run and does not, and restarts what may be restarted and whose backoff is over.",
        ends::for_good;
    a_container_gets_sigterm_and_its_time, "stop_pod",
        "Stops every container of the pod: preStop hook, SIGTERM, grace period, SIGKILL.",
        stops::politely;
    a_container_that_ignores_sigterm_keeps_its_whole_grace, "stop_pod",
        "No container is killed before its grace is over.",
        stops::not_early;
    a_container_that_outlasts_its_grace_is_killed, "stop_pod",
        "What still runs when the grace is over is killed.",
        stops::in_time;
    a_grace_that_is_shortened_holds_at_once, "stop_pod",
        "`grace` may shrink during the call, and the shorter one must take effect at once.",
        stops::shortened;
    a_stop_does_not_wait_for_the_rest_of_the_grace, "stop_pod",
        "It does not wait for the rest of the grace",
        stops::prompt;
    nothing_runs_when_a_stop_has_resolved, "stop_pod",
        "Resolves when nothing of the pod runs, and `pod_status` and `list_pods` say so.",
        stops::over;
    a_stopped_pod_can_be_stopped_again, "stop_pod",
        "Stopping a stopped or unknown pod succeeds.",
        stops::repeated;
    a_pod_can_be_stopped_by_its_uid_alone, "stop_pod",
        "`pod` is `None` for a pod that is not configured; only its UID is known.",
        stops::by_uid;
    an_abandoned_stop_is_joined_by_the_next, "stop_pod",
        "Dropping the future abandons the wait; the containers may continue to stop, and the next call joins that stop.",
        stops::joined;
    an_unknown_pod_is_stopped_and_empty, "pod_status",
        "A pod that the runtime does not know has none.",
        remains::unknown;
    a_stopped_pod_is_listed_until_it_is_forgotten, "list_pods",
        "Every pod of this agent of which something runs or remains.",
        remains::listed_until_forgotten;
    a_clean_up_keeps_how_the_pod_exited, "clean_pod",
        "Logs and exit records stay until `forget_pod`.",
        remains::kept_by_clean_up;
    a_clean_up_can_be_repeated, "clean_pod",
        "Every call is idempotent.",
        remains::cleaned_twice;
    a_forgotten_pod_is_gone, "forget_pod",
        "Removes what remains (logs, exit records, directories) of a pod that left its source.",
        remains::forgotten;
    a_pod_that_runs_is_not_forgotten, "forget_pod",
        "The pod still runs, or something could not be removed.",
        remains::not_while_it_runs;
    the_next_agent_finds_what_runs, "list_pods",
        "An agent that starts learns from it what an earlier one has left running.",
        next_agent::finds;
    a_runtime_that_is_away_says_so, "list_pods",
        "The runtime did not answer; what runs is unknown, not nothing.",
        next_agent::is_away;
}
