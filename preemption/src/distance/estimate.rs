//! Finds the pods that may be the closest, without divisions and without examining every pod.
//!
//! A pod that frees the fraction `f` of a requirement is at a distance of `(1 - f)²` from it. So the more it
//! helps, which is `f · (2 - f)`, the closer it is. As the lacking amount shrinks, a pod's help grows, but by no
//! larger factor than the amount shrinks by: that function is concave, and 0 at 0. So the help of a part's pods
//! when they were last examined bounds their help now, and a part that cannot contain the closest pod is skipped.
//! The pods are sorted by their initial help, which keeps those that help most together.

/// The number of pods in a part. They are processed together, several in one instruction.
const LANES: usize = 16;

/// A number for each pod of a part.
type Part = [f32; LANES];

/// The relative error of an estimate: a dozen roundings, for a few requirements, of two pods.
const SLACK: f32 = 4e-6;
/// A generous bound on the error of an exact distance.
const SLACK_OF_DISTANCES: f32 = 1e-12;

/// Estimates of how much each pod helps.
#[derive(Debug)]
pub(super) struct Estimates {
    /// The initial number of pods.
    pods: usize,
    requirements: Vec<Requirement>,
    /// For each part, an upper bound on the help of its pods, to be multiplied by `growth`.
    bounds: Vec<f64>,
    /// The factor by which the help of any pod may have grown since the start.
    growth: f64,
    /// The part that is examined first, because the closest pod was there before.
    likely: usize,
    looks: u64,
    close: Vec<usize>,
}

/// A requirement that is not met.
#[derive(Debug)]
struct Requirement {
    /// How much each pod frees of it; negative infinity for removed pods and for padding after the last pod.
    freed: Vec<Part>,
    lacking: f32,
    /// The reciprocal of `lacking`.
    factor: f32,
}

// === impl Estimates ===

impl Estimates {
    /// Takes, for each requirement, the lacking amount and what each of `pods` pods frees. Also returns the
    /// indices of the pods in the order of the rows.
    pub(super) fn new<C: Iterator<Item = i64>>(
        pods: usize,
        requirements: impl Iterator<Item = (i64, C)>,
    ) -> (Self, Vec<usize>) {
        let parts = pods.div_ceil(LANES);
        let mut requirements: Vec<Requirement> =
            requirements.map(|(lacking, freed)| Requirement::new(lacking, freed, parts)).collect();
        let order = order(&requirements, pods);
        requirements.iter_mut().for_each(|requirement| requirement.sort(&order));
        let estimates = Self {
            pods,
            requirements,
            bounds: vec![f64::INFINITY; parts],
            growth: 1.0,
            likely: 0,
            looks: 0,
            close: Vec::new(),
        };
        (estimates, order)
    }

    /// Returns rows that include the closest pod and all pods that are equally close. `lacking` has the
    /// current amounts, which are never larger than before.
    pub(super) fn closest(&mut self, lacking: impl Iterator<Item = i64>) -> &[usize] {
        self.shrink(lacking);
        let mut most = self.look(self.likely);
        for part in 0..self.bounds.len() {
            if self.may_help(part, most) && part != self.likely {
                let found = self.look(part);
                if found > most {
                    (most, self.likely) = (found, part);
                }
            }
        }
        let limit = most - most * SLACK - SLACK_OF_DISTANCES;
        self.close.clear();
        for part in 0..self.bounds.len() {
            if self.may_help(part, limit) {
                let rows = (part * LANES..).zip(helps(&self.requirements, part));
                self.close.extend(rows.filter(|(_, help)| *help >= limit).map(|(row, _)| row));
            }
        }
        &self.close
    }

    /// How many rows have been examined.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Removes a pod. The rows of the others stay the same.
    pub(super) fn remove(&mut self, row: usize) {
        for requirement in &mut self.requirements {
            requirement.freed[row / LANES][row % LANES] = f32::NEG_INFINITY;
        }
    }

    /// Removes a requirement that has been met.
    pub(super) fn remove_requirement(&mut self, at: usize) {
        self.requirements.remove(at);
    }

    fn shrink(&mut self, lacking: impl Iterator<Item = i64>) {
        let mut growth = 1.0;
        for (requirement, lacking) in self.requirements.iter_mut().zip(lacking) {
            let before = requirement.lacking;
            requirement.lacking = float(lacking);
            requirement.factor = 1.0 / requirement.lacking;
            growth = greater(growth, before / requirement.lacking);
        }
        self.growth *= f64::from(growth) * (1.0 + 1e-6);
    }

    /// Whether any pod of the part may help as much as `most`.
    fn may_help(&self, part: usize, most: f32) -> bool {
        self.bounds[part] * self.growth >= f64::from(most)
    }

    /// Examines a part and returns the greatest help of its pods.
    fn look(&mut self, part: usize) -> f32 {
        self.looks += LANES.min(self.pods - part * LANES) as u64;
        let most = greatest(&helps(&self.requirements, part));
        self.bounds[part] = f64::from(most) / self.growth;
        most
    }
}

/// Returns the pods sorted by help, greatest first.
fn order(requirements: &[Requirement], pods: usize) -> Vec<usize> {
    let parts = pods.div_ceil(LANES);
    let mut keys = Vec::with_capacity(parts * LANES);
    for part in 0..parts {
        // The bit patterns of non-negative floats compare as the floats do.
        keys.extend_from_slice(&helps(requirements, part).map(|help| !help.max(0.0).to_bits()));
    }
    let mut order: Vec<(u32, usize)> = keys.into_iter().zip(0..pods).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, pod)| pod).collect()
}

/// Returns how much each pod of a part helps.
#[inline]
fn helps(requirements: &[Requirement], part: usize) -> Part {
    let mut sums = [0.0; LANES];
    for requirement in requirements {
        for (sum, freed) in sums.iter_mut().zip(&requirement.freed[part]) {
            // Freeing more than is lacking does not help more.
            let freed = lesser(freed * requirement.factor, 1.0);
            *sum += freed * (2.0 - freed);
        }
    }
    sums
}

/// Returns the greater of two numbers. Compiles to one instruction, because it does not handle NaN.
#[inline]
fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Returns the greatest number, in steps that can be vectorized.
#[inline]
fn greatest(part: &Part) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|at| greater(part[at], part[at + 8]));
    let four: [f32; 4] = std::array::from_fn(|at| greater(eight[at], eight[at + 4]));
    greater(greater(four[0], four[1]), greater(four[2], four[3]))
}

#[inline]
fn lesser(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[allow(clippy::cast_precision_loss, reason = "there is room for rounding")]
fn float(amount: i64) -> f32 {
    amount as f32
}

// === impl Requirement ===

impl Requirement {
    fn new(lacking: i64, amounts: impl Iterator<Item = i64>, parts: usize) -> Self {
        let mut freed = vec![[f32::NEG_INFINITY; LANES]; parts];
        let rows = freed.as_flattened_mut().iter_mut();
        rows.zip(amounts).for_each(|(freed, amount)| *freed = float(amount));
        let lacking = float(lacking);
        Self { freed, lacking, factor: 1.0 / lacking }
    }

    fn sort(&mut self, order: &[usize]) {
        let unsorted = self.freed.clone();
        let unsorted = unsorted.as_flattened();
        let rows = self.freed.as_flattened_mut().iter_mut();
        rows.zip(order).for_each(|(freed, pod)| *freed = unsorted[*pod]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimates(amounts: &[&[i64]], lacking: &[i64]) -> (Estimates, Vec<usize>) {
        let columns = amounts.iter().map(|column| column.iter().copied());
        Estimates::new(amounts[0].len(), lacking.iter().copied().zip(columns))
    }

    /// Returns the pods that may be the closest, given what each frees and what is lacking of each requirement.
    fn closest(amounts: &[&[i64]], lacking: &[i64]) -> Vec<usize> {
        let (mut estimates, order) = estimates(amounts, lacking);
        let rows = estimates.closest(lacking.iter().copied());
        let mut pods: Vec<usize> = rows.iter().map(|row| order[*row]).collect();
        pods.sort_unstable();
        pods
    }

    #[test]
    fn only_pods_that_may_be_the_closest_are_left() {
        assert_eq!(closest(&[&[3, 7, 5, 6]], &[10]), [1]);
        assert_eq!(closest(&[&[3, 10, 5, 12]], &[10]), [1, 3], "more than is lacking is no closer");
        assert_eq!(closest(&[&[10, 0, 5], &[0, 10, 5]], &[10, 10]), [2]);
        let three: [&[i64]; 3] = [&[10, 0, 5, 10], &[0, 10, 5, 5], &[0, 0, 5, 10]];
        assert_eq!(closest(&three, &[10, 10, 10]), [3]);
    }

    #[test]
    fn what_an_estimate_cannot_tell_apart_is_left() {
        let whole = 1_000_000_000_000_000;
        assert_eq!(closest(&[&[whole / 2, whole / 2 + 1, whole / 4]], &[whole]), [0, 1]);
        assert_eq!(closest(&[&[1, 2, 3]], &[i64::MAX]), [0, 1, 2], "rounding hides them from all");
    }

    #[test]
    fn pods_are_sorted_by_what_they_help_and_one_that_was_taken_out_is_never_the_closest() {
        let (mut estimates, order) = estimates(&[&[1, 9, 8]], &[10]);
        assert_eq!(order, [1, 2, 0]);
        for row in [0, 1, 2] {
            assert_eq!(estimates.closest([10].into_iter()), [row]);
            estimates.remove(row);
        }
    }

    /// Compares each answer with one for which all parts are examined.
    #[test]
    fn parts_that_are_not_looked_at_do_not_hold_the_closest() {
        let amounts = |factor: i64| (0..200).map(|i| i * factor % 97 + 1).collect::<Vec<i64>>();
        let (cpu, memory) = (amounts(31), amounts(57));
        let mut lacking = [4000, 5000];
        let (mut estimates, order) = estimates(&[&cpu, &memory], &lacking);
        for _ in 0..30 {
            let rows = estimates.closest(lacking.into_iter()).to_vec();
            estimates.bounds.fill(f64::INFINITY);
            assert_eq!(estimates.closest(lacking.into_iter()), rows, "{lacking:?}");
            estimates.remove(rows[0]);
            lacking[0] -= cpu[order[rows[0]]];
            lacking[1] -= memory[order[rows[0]]];
        }
        assert!(lacking.iter().all(|left| *left > 0), "{lacking:?}");
    }
}
