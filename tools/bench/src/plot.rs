//! Bar charts of a run, as SVG, for documents.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::growth::Growth;
use crate::report::{COLUMNS, Figures, Report};
use crate::subject::Kind;

const ROW: usize = 24;
const TOP: usize = 40;
const LEFT: usize = 190;
const BARS: usize = 430;
const WIDTH: usize = 720;
/// The color of the queue in memory and over the emulator.
const OWN: &str = "#1f6feb";
const OTHER: &str = "#8c959f";

struct Bar<'a> {
    label: &'a str,
    value: f64,
    /// Of the queue itself.
    is_own: bool,
}

/// A figure of a phase, for all its subjects.
struct Chart {
    phase: &'static str,
    figure: &'static str,
    title: &'static str,
}

const CHARTS: [Chart; 8] = [
    Chart { phase: "emit-single", figure: "per_second", title: "Emits by 32 callers: events/s" },
    Chart { phase: "emit-bulk", figure: "per_second", title: "Emits, 1,000 in a call: events/s" },
    Chart { phase: "drain-1000", figure: "per_second", title: "Drain of 100,000: events/s" },
    Chart { phase: "drain-1000", figure: "pg_cpu_us", title: "Drain of 100,000: Postgres CPU, µs/event" },
    Chart { phase: "rate-500", figure: "p50_ms", title: "500 events/s: median latency, ms" },
    Chart { phase: "rate-500", figure: "p99_ms", title: "500 events/s: 99th percentile, ms" },
    Chart {
        phase: "snapshot",
        figure: "pg_cpu_us",
        title: "500 events/s, 200,000 dead rows: Postgres CPU, µs/event",
    },
    Chart { phase: "idle", figure: "statements", title: "A worker without work: statements/min" },
];

/// Writes a file for each chart that has bars.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    for chart in CHARTS {
        let file = folder.join(format!("{}-{}.svg", chart.phase, chart.figure));
        draw(&file, chart.title, &chart.bars(report))?;
    }
    for growth in Growth::ALL {
        let file = folder.join(format!("grow-{}.svg", growth.name()));
        draw(&file, growth.title(), &grown(report, growth))?;
    }
    Ok(())
}

fn draw(file: &Path, title: &str, bars: &[Bar<'_>]) -> Result<()> {
    if bars.is_empty() {
        return Ok(());
    }
    fs::write(file, svg(title, bars)).with_context(|| format!("{} can't be written", file.display()))
}

/// A bar for each size: what an event costs Postgres.
fn grown(report: &Report, growth: Growth) -> Vec<Bar<'_>> {
    let prefix = format!("grow-{}-", growth.name());
    let cost = |figures: &Figures| Some(figures.pg_cpu_us);
    let sizes = report.trials().into_iter().filter_map(|(phase, subject)| {
        let label = phase.strip_prefix(prefix.as_str())?;
        Some(Bar { label, value: report.median_of(phase, subject, cost)?, is_own: true })
    });
    sizes.collect()
}

impl Chart {
    /// Without bare statements, which are not a queue.
    fn bars<'a>(&self, report: &'a Report) -> Vec<Bar<'a>> {
        let is_queue = |subject: &str| subject != Kind::Statements.name();
        let subjects =
            report.trials().into_iter().filter(|(phase, subject)| *phase == self.phase && is_queue(subject));
        let figure = COLUMNS.into_iter().find(|(name, _)| *name == self.figure);
        let value = |subject| report.median_of(self.phase, subject, figure?.1);
        let is_own =
            |subject| [Kind::Memory, Kind::Postgres, Kind::Emulator].map(Kind::name).contains(&subject);
        let bar = |label| Some(Bar { label, value: value(label)?, is_own: is_own(label) });
        subjects.filter_map(|(_, subject)| bar(subject)).collect()
    }
}

fn svg(title: &str, bars: &[Bar<'_>]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let height = TOP + ROW * bars.len() + 8;
    let rows = bars.iter().enumerate().map(|(index, Bar { label, value, is_own })| {
        let (top, width) = (TOP + ROW * index, value / most * BARS as f64);
        let (color, text) = (if *is_own { OWN } else { OTHER }, top + 13);
        format!(
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{label}</text>\n\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"18\" fill=\"{color}\"/>\n\
             <text x=\"{:.1}\" y=\"{text}\">{}</text>\n",
            LEFT - 8,
            LEFT as f64 + width + 6.0,
            crate::report::shown(Some(*value)),
        )
    });
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"22\" font-weight=\"bold\">{title}</text>\n{}</svg>\n",
        rows.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_has_the_full_width_and_the_others_their_share() {
        let bar = |label, value, is_own| Bar { label, value, is_own };
        let svg = svg("Title", &[bar("memory", 2000.0, true), bar("handwritten", 500.0, false)]);
        assert!(svg.contains("width=\"430.0\" height=\"18\" fill=\"#1f6feb\""), "{svg}");
        assert!(svg.contains("width=\"107.5\" height=\"18\" fill=\"#8c959f\""), "{svg}");
        assert!(svg.contains(">2000</text>"), "{svg}");
    }
}
