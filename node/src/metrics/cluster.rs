//! The state of the node in its cluster at the time of a scrape.

use std::fmt;

use prometheus_client::registry::Unit;
use winddown_shared::WallTime;

use super::document::Document;
use super::plugin::PluginGauge;

/// The state of a node in its cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// Whether the API server answers and accepts the credentials.
    pub connected: bool,
    /// Whether the Node object of this node exists.
    pub registered: bool,
    /// When the lease was last renewed.
    pub lease_renewed: Option<WallTime>,
    /// Number of lease renewals.
    pub lease_renewals: u64,
    /// Number of writes of the Node's status.
    pub status_writes: u64,
    /// Number of pods whose latest status the API server does not have.
    pub statuses_waiting: usize,
    /// Number of pod statuses that the API server has accepted.
    pub statuses_sent: u64,
    /// Number of failed attempts to send a pod status.
    pub status_failures: u64,
    /// Number of final statuses that are on disk until the API server has them.
    pub spool_records: usize,
    /// Number of final statuses that could not be written to disk.
    pub spool_errors: u64,
    /// Number of events that the API server has accepted.
    pub events_written: u64,
    /// Number of events that were dropped.
    pub events_lost: u64,
    /// Number of mirror pods of this node on the API server.
    pub mirrors: usize,
    /// The client certificate.
    pub certificate: CertificateGauges,
    /// The gauges of plug-ins that need the cluster, in this order.
    pub of_plugins: Vec<PluginGauge>,
}

/// The state of the client certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct CertificateGauges {
    /// The seconds until it expires, negative once it has; `None` without one.
    pub time_left: Option<i64>,
    /// Number of failed attempts to renew it.
    pub renew_errors: u64,
}

impl CertificateGauges {
    fn encode(&self, out: &mut Document<'_, '_>) -> fmt::Result {
        out.gauge(
            "kubelet_certificate_manager_client_ttl",
            "Time until the client certificate expires, negative once it has; +Inf without one.",
            Some(&Unit::Seconds),
            self.time_left.map_or(f64::INFINITY, |seconds| seconds as f64),
        )?;
        // The kubelet's counter has no `_total`, which would be appended to a counter's name.
        out.gauge(
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Failed attempts to renew the client certificate.",
            None,
            i64::try_from(self.renew_errors).unwrap_or(i64::MAX),
        )
    }
}

impl ClusterFacts {
    pub(super) fn encode(&self, out: &mut Document<'_, '_>) -> fmt::Result {
        out.gauge(
            "winddown_api_connected",
            "Whether the API server answers and accepts the credentials.",
            None,
            i64::from(self.connected),
        )?;
        out.gauge(
            "winddown_node_registered",
            "Whether the API server has a Node object of this node.",
            None,
            i64::from(self.registered),
        )?;
        out.gauge_if(
            "winddown_node_lease_renewed_timestamp",
            "When the node's lease was last renewed, in seconds since 1970.",
            Some(&Unit::Seconds),
            self.lease_renewed.map(WallTime::as_second),
        )?;
        for (name, help, value) in [
            (
                "winddown_statuses_waiting",
                "Pods of which the API server does not have the latest status.",
                self.statuses_waiting,
            ),
            (
                "winddown_status_spool_records",
                "Final statuses kept on disk until the API server has them.",
                self.spool_records,
            ),
        ] {
            out.gauge(name, help, None, i64::try_from(value).unwrap_or(i64::MAX))?;
        }
        for (name, help, value) in [
            ("winddown_node_lease_renewals", "Renewals of the node's lease.", self.lease_renewals),
            (
                "winddown_node_status_writes",
                "Times the Node's status was written.",
                self.status_writes,
            ),
            ("winddown_statuses_sent", "Pod statuses the API server accepted.", self.statuses_sent),
            (
                "winddown_status_failures",
                "Failed attempts to send a pod's status to the API server.",
                self.status_failures,
            ),
            (
                "winddown_status_spool_errors",
                "Final statuses that could not be saved to disk.",
                self.spool_errors,
            ),
            ("winddown_events_written", "Events the API server accepted.", self.events_written),
            ("winddown_events_lost", "Events that were dropped.", self.events_lost),
        ] {
            out.counter(name, help, None, value)?;
        }
        self.certificate.encode(out)?;
        self.of_plugins.iter().try_for_each(|gauge| gauge.encode(out))
    }
}
