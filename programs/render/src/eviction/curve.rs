//! The available memory around an eviction, as a line of block characters.

use winddown_control::api::MemoryCurve;
use winddown_shared::display::seconds;

use crate::preemption::byte_text;

/// The block for values below the threshold.
const LOW: char = '▁';
/// The blocks for values from the threshold to the maximum.
const LEVELS: [char; 7] = ['▂', '▃', '▄', '▅', '▆', '▇', '█'];
const CHOSEN: &str = "chosen";
/// The minimum width of a curve, in columns.
const MIN_CURVE_COLUMNS: usize = 16;

/// Draws one block per value, the mark of the eviction, and a caption. On a narrow screen the oldest values are left
/// out.
pub(super) fn lines(curve: &MemoryCurve, width: Option<usize>) -> Option<[String; 3]> {
    let room = width.map_or(usize::MAX, |width| width.max(MIN_CURVE_COLUMNS));
    let left_out = curve.available.len().saturating_sub(room);
    let shown = curve.available.get(left_out..)?;
    let most = shown.iter().flatten().copied().max()?;
    let blocks = shown.iter().map(|value| block(*value, curve.threshold, most)).collect();
    let chosen = curve.chosen_at.checked_sub(left_out).filter(|at| *at < shown.len())?;
    let mark = match chosen + CHOSEN.len() + 2 <= room {
        true => format!("{}^ {CHOSEN}", " ".repeat(chosen)),
        false => format!("{:>1$}", format!("{CHOSEN} ^"), chosen + 1),
    };
    let time = u32::try_from(shown.len()).map_or(0.0, f64::from) * curve.seconds_each as f64;
    let (time, most, least) = (seconds(time), byte_text(most), byte_text(curve.threshold));
    let said = format!("{time} of available memory, at most {most}; {LOW} is less than {least}");
    Some([blocks, mark, said])
}

fn block(value: Option<i64>, threshold: i64, most: i64) -> char {
    let Some(value) = value else { return ' ' };
    let [above, range] = [value, most].map(|amount| i128::from(amount) - i128::from(threshold));
    let level = usize::try_from(above * 7 / (range + 1).max(1)).ok().filter(|_| above >= 0);
    level.and_then(|level| LEVELS.get(level).copied()).unwrap_or(LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: i64 = 1 << 20;

    fn curve(available: &[i64], chosen_at: usize) -> MemoryCurve {
        let value = |mebibytes: &i64| (*mebibytes >= 0).then_some(mebibytes * MI);
        let available = available.iter().map(value).collect();
        MemoryCurve { seconds_each: 3, available, chosen_at, threshold: 100 * MI }
    }

    #[test]
    fn the_lowest_block_is_what_is_less_than_the_threshold_and_nothing_else() {
        let fall = curve(&[800, 700, 500, -1, 100, 99, 0, 750], 5);
        let lines = lines(&fall, None).unwrap();
        assert_eq!(
            lines,
            [
                "█▇▅ ▂▁▁█",
                "     ^ chosen",
                "24s of available memory, at most 800Mi; ▁ is less than 100Mi"
            ]
        );
        let never_above = curve(&[90, 80], 1);
        assert_eq!(super::lines(&never_above, None).unwrap()[0], "▁▁");
        let at_it = curve(&[100], 0);
        assert_eq!(super::lines(&at_it, None).unwrap()[0], "▂");
    }

    #[test]
    fn on_a_narrow_screen_the_newest_values_are_left_and_the_mark_stands_where_there_is_room() {
        let long = curve(&[[800; 59].as_slice(), &[50]].concat(), 59);
        let lines = lines(&long, Some(30)).unwrap();
        assert_eq!((lines[0].chars().count(), lines[0].chars().last()), (30, Some('▁')));
        assert_eq!(lines[1], format!("{:>30}", "chosen ^"));
    }

    #[test]
    fn what_no_agent_says_is_no_panic() {
        for (available, chosen_at) in [(&[][..], 0), (&[1][..], 7), (&[-1][..], 0)] {
            assert_eq!(lines(&curve(available, chosen_at), Some(0)), None);
        }
        let mut extreme = curve(&[1, 1], 1);
        extreme.available = vec![Some(i64::MIN), Some(i64::MAX)];
        for threshold in [i64::MIN, i64::MAX] {
            extreme.threshold = threshold;
            assert!(lines(&extreme, None).is_some());
        }
    }
}
