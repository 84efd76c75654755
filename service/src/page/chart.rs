//! Charts, drawn here as SVG: the browser needs no script for them, and a reader without eyes gets
//! a sentence.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::parts::{Tone, svg};

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;
/// How many columns are drawn at most; beyond that, several values are one column.
const COLUMNS_MAX: usize = 150;

/// A series of a chart.
pub(crate) struct Series<'a> {
    pub(crate) label: &'a str,
    /// The class that colours it: `done`, `failed`, `dead`, `wait` or `emitted`.
    pub(crate) class: &'a str,
    pub(crate) values: Vec<f64>,
}

/// Columns from left to right, mostly over time, the series on top of each other. `summary` is for
/// those who can't see it; `largest` is the largest sum of a column, as it is written at the axis;
/// `ends` stand below the first column and the last.
pub(crate) fn columns(
    title: &str,
    summary: &str,
    series: &[Series<'_>],
    largest: fn(f64) -> String,
    ends: &[Markup; 2],
) -> Markup {
    let labels = html! { ul.legend { @for one in series { li class=(one.class) { (one.label) } } } };
    let series: Vec<_> = series.iter().map(|one| (one.class, gathered(&one.values))).collect();
    let count = series.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let sum = |at: usize| series.iter().filter_map(|(_, values)| values.get(at)).sum::<f64>();
    let most = (0..count).map(sum).fold(0.0, f64::max);
    let mut drawn = String::new();
    if most > 0.0 {
        let step = WIDTH / count as f64;
        for at in 0..count {
            let mut bottom = HEIGHT;
            for (class, values) in &series {
                let height = values.get(at).copied().unwrap_or(0.0) / most * (HEIGHT - 2.0);
                if height > 0.0 {
                    bottom -= height;
                    // Writing into a string can't fail.
                    let _ = write!(
                        drawn,
                        r#"<rect class="{class}" x="{:.2}" y="{bottom:.2}" width="{:.2}" height="{height:.2}"/>"#,
                        at as f64 * step,
                        (step - 1.0).max(0.5)
                    );
                }
            }
        }
    }
    html! {
        figure.chart {
            figcaption { (title) " " span.quiet { (if most > 0.0 { largest(most) } else { "nothing happened".to_owned() }) } }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(summary) {
                (svg(drawn))
            }
            p.axis { @for end in ends { span { (end) } } }
            (labels)
        }
    }
}

/// A bar, filled as far as `part` is of `whole`. `words` are for those who can't see it.
pub(crate) fn bar(part: f64, whole: f64, tone: Tone, words: &str) -> Markup {
    let filled = match (part > 0.0, whole > 0.0) {
        (_, true) => (part / whole).clamp(0.0, 1.0) * 100.0,
        (true, false) => 100.0,
        (false, false) => 0.0,
    };
    html! {
        svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=(words) {
            rect.whole width="100" height="8" {}
            rect class=(tone.class()) width=(format!("{filled:.1}")) height="8" {}
        }
    }
}

/// The values, several added up to one if there are too many.
fn gathered(values: &[f64]) -> Vec<f64> {
    let together = values.len().div_ceil(COLUMNS_MAX).max(1);
    values.chunks(together).map(|some| some.iter().sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_on_each_other_and_fill_the_height() {
        let series = [
            Series { label: "done", class: "done", values: vec![1.0, 0.0, 3.0] },
            Series { label: "failed", class: "failed", values: vec![1.0, 0.0, 1.0] },
        ];
        let ends = ["monday", "<friday>"].map(|day| html! { (day) });
        let chart = columns("Events", "4 done, 2 failed", &series, |most| format!("up to {most}"), &ends);
        let chart = chart.into_string();
        assert_eq!(chart.matches("<rect").count(), 4, "nothing is drawn for nothing");
        assert!(chart.contains("up to 4") && chart.contains(r#"aria-label="4 done, 2 failed""#));
        assert!(chart.contains(r#"y="2.00""#), "the largest column reaches the top: {chart}");
        let axis = r#"</svg><p class="axis"><span>monday</span><span>&lt;friday&gt;</span></p>"#;
        assert!(chart.contains(axis), "where it begins and ends: {chart}");
    }

    #[test]
    fn a_bar_is_filled_as_far_as_it_is_used() {
        for (part, whole, width) in [
            (0.0, 5.0, "0.0"),
            (1.0, 8.0, "12.5"),
            (9.0, 8.0, "100.0"),
            (1.0, 0.0, "100.0"),
            (0.0, 0.0, "0.0"),
        ] {
            let bar = bar(part, whole, Tone::Busy, "some of it").into_string();
            assert!(bar.contains(&format!(r#"class="busy" width="{width}""#)), "{part} of {whole}: {bar}");
            assert!(bar.contains(r#"aria-label="some of it""#));
        }
    }

    #[test]
    fn many_values_are_few_columns() {
        assert_eq!(gathered(&[1.0; 20_160]).len(), 150);
        assert_eq!(gathered(&[1.0; 20_160]).iter().sum::<f64>(), 20_160.0);
        assert!(gathered(&[]).is_empty());
    }
}
