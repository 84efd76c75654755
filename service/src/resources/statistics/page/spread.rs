//! How long single attempts waited and took, in bins: two humps and long tails, which means and
//! percentiles do not show.

use maud::{Markup, html};

use crate::page::chart::{Series, columns};
use crate::page::parts::{number, table};
use crate::page::time::length;
use crate::resources::statistics::wire::BinsJson;

/// How many attempts waited, and ran, for so long.
struct Bin {
    from_ms: u64,
    /// The last bin has no end.
    below_ms: Option<u64>,
    waited: u64,
    ran: u64,
}

/// Two charts of the same bins, and a table with the numbers. Nothing if nothing ran.
pub(super) fn spread(bins: &BinsJson) -> Markup {
    let bins = from_first_used(bins);
    if bins.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Single attempts" }
        div.charts {
            (chart("How long their events waited", &bins, |bin| bin.waited))
            (chart("How long they ran", &bins, |bin| bin.ran))
        }
        (table("Attempts by how long they waited and ran", &["How long", ">Waited", ">Ran"], html! {
            @for bin in bins.iter().filter(|bin| bin.waited > 0 || bin.ran > 0) {
                tr {
                    td { (bin.words()) }
                    td.number { (number(bin.waited)) }
                    td.number { (number(bin.ran)) }
                }
            }
        }))
    }
}

fn chart(title: &str, bins: &[Bin], of: fn(&Bin) -> u64) -> Markup {
    let words = |bin: Option<&Bin>| bin.map(Bin::words).unwrap_or_default();
    let all: u64 = bins.iter().map(of).sum();
    let most = words(bins.iter().max_by_key(|bin| of(bin)));
    let fullest = if all > 0 { format!(", and the fullest bin is {most}") } else { String::new() };
    let summary = format!("{} attempts{fullest}", number(all));
    let values = bins.iter().map(|bin| of(bin) as f64).collect();
    let ends = [bins.first(), bins.last()].map(|bin| html! { (words(bin)) });
    columns(title, &summary, &[Series { label: "attempts", class: "wait", values }], largest, &ends)
}

/// The largest column, as it is written at the chart.
fn largest(most: f64) -> String {
    format!("up to {} in a bin", number(most as u64))
}

/// Without the bins before the first that has something.
fn from_first_used(bins: &BinsJson) -> Vec<Bin> {
    let (mut from_ms, mut found) = (0, Vec::new());
    for ((below_ms, waited), ran) in bins.below_ms.iter().zip(&bins.wait).zip(&bins.run) {
        let bin = Bin { from_ms, below_ms: *below_ms, waited: *waited, ran: *ran };
        from_ms = below_ms.unwrap_or(from_ms);
        if !found.is_empty() || bin.waited > 0 || bin.ran > 0 {
            found.push(bin);
        }
    }
    found
}

impl Bin {
    fn words(&self) -> String {
        let spelled = |ms: u64| length(ms as f64 / 1e3);
        match (self.from_ms, self.below_ms) {
            (0, Some(below_ms)) => format!("less than {}", spelled(below_ms)),
            (from_ms, Some(below_ms)) => format!("{} to {}", spelled(from_ms), spelled(below_ms)),
            (from_ms, None) => format!("{} and more", spelled(from_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_drawn_from_the_first_that_has_something() {
        let bins = BinsJson {
            below_ms: vec![Some(1), Some(2), Some(4), Some(8)],
            wait: vec![0, 0, 0, 9],
            run: vec![0, 3, 0, 0],
        };
        let shown = spread(&bins).into_string();
        assert_eq!(shown.matches("<rect").count(), 2, "{shown}");
        assert_eq!(shown.matches("<span>1 ms to 2 ms</span><span>4 ms to 8 ms</span>").count(), 2, "{shown}");
        assert_eq!(shown.matches("<tr><td>").count(), 2, "an empty bin has no row: {shown}");
        assert!(shown.contains("9 attempts, and the fullest bin is 4 ms to 8 ms"), "{shown}");
        let unwaited = spread(&BinsJson { wait: vec![0; 4], ..bins }).into_string();
        assert!(unwaited.contains(r#""0 attempts""#), "no bin is the fullest of none: {unwaited}");
        assert_eq!(spread(&BinsJson::default()).into_string(), "");
    }

    #[test]
    fn the_first_bin_begins_with_nothing_and_the_last_has_no_end() {
        let bin = |from_ms, below_ms| Bin { from_ms, below_ms, waited: 1, ran: 1 };
        assert_eq!(bin(0, Some(1)).words(), "less than 1 ms");
        assert_eq!(bin(512, Some(1_024)).words(), "512 ms to 1.0 s");
        assert_eq!(bin(1 << 26, None).words(), "18 h and more");
    }
}
