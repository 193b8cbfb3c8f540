//! Source, mirror, priority and criticality.
