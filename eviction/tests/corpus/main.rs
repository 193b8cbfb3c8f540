//! Compares with recorded answers of Kubernetes 1.36: every row of both files.

#[cfg(test)]
mod ranking;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod thresholds;
