//! Sources: what a consumer reads in order, and the unit that is allocated to one consumer of a
//! group at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Category, InvalidLogName, StreamId, StreamName};
use crate::event::CanvasId;

/// Maximum number of partitions of a category.
const PARTITIONS_MAX: u16 = 1024;

/// One partition of a category: the streams whose bucket modulo the count selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    of: NonZeroU16,
    number: NonZeroU16,
}

impl Partition {
    /// The partition `number`, counted from 1, of a category that is split into `of`, at most
    /// 1,024. `None` if no partition has this number.
    ///
    /// ```
    /// use wakeq::log::Partition;
    ///
    /// assert_eq!(Partition::new(10, 15).unwrap().label(), "a");
    /// assert!(Partition::new(16, 15).is_none());
    /// ```
    pub fn new(number: u16, of: u16) -> Option<Self> {
        let (number, of) = (NonZeroU16::new(number)?, NonZeroU16::new(of)?);
        (number <= of && of.get() <= PARTITIONS_MAX).then_some(Self { number, of })
    }

    /// All partitions of a category that is split into `of`; empty if `of` is not 1 to 1,024.
    pub fn all(of: u16) -> Vec<Self> {
        (1..=of).filter_map(|number| Self::new(number, of)).collect()
    }

    /// Its number, counted from 1.
    pub fn number(self) -> u16 {
        self.number.get()
    }

    /// How many partitions its category has.
    pub fn of(self) -> u16 {
        self.of.get()
    }

    /// Its number in hexadecimal: `1` to `f`, `10`, …
    pub fn label(self) -> String {
        format!("{:x}", self.number)
    }

    /// Whether a stream is in it. A stream is always in the same, single partition of a category.
    pub fn has(self, stream: &StreamId) -> bool {
        stream.bucket() % self.of == self.number.get() - 1
    }
}

/// A part of the log that a consumer reads in order: all of it, a category or a partition of one,
/// or a stream. Without a canvas it covers all canvases.
///
/// ```
/// use wakeq::log::{EventSource, Partition};
///
/// let companies = EventSource::category("companies").unwrap();
/// assert_eq!(companies.to_string(), "category/companies");
/// let third = companies.partition(Partition::new(3, 15).unwrap()).unwrap();
/// assert_eq!(third.to_string(), "category/companies/3-of-f");
/// assert_eq!("category/companies/3-of-f".parse(), Ok(third));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventSource {
    /// The whole log.
    Log {
        /// The tenant; `None` for all of them.
        canvas: Option<CanvasId>,
    },
    /// The streams of a category.
    Category {
        /// The tenant; `None` for all of them.
        canvas: Option<CanvasId>,
        /// The category.
        category: Category,
        /// One of its partitions; `None` for the whole category.
        partition: Option<Partition>,
    },
    /// One stream.
    Stream(StreamId),
}

/// A text or JSON value that is not a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSource {
    /// The text does not have the form of a source.
    #[error(
        "{0:?} is not a source: use log, category/CATEGORY, category/CATEGORY/PARTITION-of-COUNT \
         or stream/CANVAS/CATEGORY/STREAM; the first three may begin with canvas/CANVAS/"
    )]
    Form(String),
    /// A name in it is not valid.
    #[error(transparent)]
    Name(#[from] InvalidLogName),
    /// The JSON is not a list of sources.
    #[error("this is not a list of sources: {0}")]
    Json(String),
}

impl EventSource {
    /// A whole category, on all canvases.
    pub fn category(category: &str) -> Result<Self, InvalidLogName> {
        Ok(Self::Category { canvas: None, category: category.parse()?, partition: None })
    }

    /// The same source on this canvas only; a stream becomes the stream of the same name there.
    pub fn on(self, canvas: CanvasId) -> Self {
        match self {
            Self::Log { .. } => Self::Log { canvas: Some(canvas) },
            Self::Category { category, partition, .. } => {
                Self::Category { canvas: Some(canvas), category, partition }
            }
            Self::Stream(stream) => Self::Stream(StreamId { canvas, ..stream }),
        }
    }

    /// This partition of the category; `None` if the source is not a category.
    pub fn partition(&self, partition: Partition) -> Option<Self> {
        match self {
            Self::Category { canvas, category, .. } => Some(Self::Category {
                canvas: *canvas,
                category: category.clone(),
                partition: Some(partition),
            }),
            Self::Log { .. } | Self::Stream(_) => None,
        }
    }

    /// Whether the source contains the events of this stream.
    pub fn has(&self, stream: &StreamId) -> bool {
        let on = |canvas: &Option<CanvasId>| canvas.is_none_or(|canvas| canvas == stream.canvas);
        match self {
            Self::Log { canvas } => on(canvas),
            Self::Category { canvas, category, partition } => {
                on(canvas)
                    && *category == stream.category
                    && partition.is_none_or(|partition| partition.has(stream))
            }
            Self::Stream(one) => one == stream,
        }
    }
}

impl fmt::Display for EventSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let canvas = match self {
            Self::Log { canvas } | Self::Category { canvas, .. } => *canvas,
            Self::Stream(_) => None,
        };
        if let Some(canvas) = canvas {
            write!(formatter, "canvas/{canvas}/")?;
        }
        match self {
            Self::Log { .. } => formatter.write_str("log"),
            Self::Category { category, partition: None, .. } => write!(formatter, "category/{category}"),
            Self::Category { category, partition: Some(partition), .. } => {
                write!(formatter, "category/{category}/{:x}-of-{:x}", partition.number, partition.of)
            }
            Self::Stream(StreamId { canvas, category, name }) => {
                write!(formatter, "stream/{canvas}/{category}/{name}")
            }
        }
    }
}

impl FromStr for EventSource {
    type Err = InvalidSource;

    fn from_str(text: &str) -> Result<Self, InvalidSource> {
        let invalid = || InvalidSource::Form(text.chars().take(512).collect());
        let canvas = |text: &str| text.parse::<CanvasId>().map_err(|_| invalid());
        let parts: Vec<&str> = text.split('/').collect();
        let (of, parts) = match parts.as_slice() {
            ["canvas", of, rest @ ..] => (Some(canvas(of)?), rest),
            all => (None, all),
        };
        match (of, parts) {
            (canvas, ["log"]) => Ok(Self::Log { canvas }),
            (canvas, ["category", category]) => {
                Ok(Self::Category { canvas, category: category.parse()?, partition: None })
            }
            (canvas, ["category", category, partition]) => {
                let partition = Some(partition_of(partition).ok_or_else(invalid)?);
                Ok(Self::Category { canvas, category: category.parse()?, partition })
            }
            (None, ["stream", of, category, name]) => {
                Ok(Self::Stream(StreamId::new(canvas(of)?, category, name)?))
            }
            _ => Err(invalid()),
        }
    }
}

/// Parses `3-of-f`.
fn partition_of(text: &str) -> Option<Partition> {
    let (number, of) = text.split_once("-of-")?;
    let partition = Partition::new(u16::from_str_radix(number, 16).ok()?, u16::from_str_radix(of, 16).ok()?)?;
    (partition.label() == number && format!("{:x}", partition.of) == of).then_some(partition)
}

/// A list of sources in the form in which it is shown and stored in `subscriptions`, with the
/// partitions of a category grouped: `[{"type": "category", "category": "companies", "partitions":
/// ["1", "2"], "of": 15}]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceList(pub Vec<EventSource>);

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Wire {
    Log {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        canvas: Option<Uuid>,
    },
    Category {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        canvas: Option<Uuid>,
        category: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partitions: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<u16>,
    },
    Stream {
        canvas: Uuid,
        category: String,
        stream: String,
    },
}

impl SourceList {
    /// The list as JSON. Lists of the same sources yield the same text, whatever their order.
    pub fn to_json(&self) -> String {
        let mut wires = Vec::new();
        let mut partitioned = BTreeMap::<_, Vec<Partition>>::new();
        let mut sources = self.0.clone();
        sources.sort();
        sources.dedup();
        for source in sources {
            match source {
                EventSource::Log { canvas } => {
                    wires.push(Wire::Log { canvas: canvas.map(|canvas| canvas.0) })
                }
                EventSource::Category { canvas, category, partition: None } => wires.push(Wire::Category {
                    canvas: canvas.map(|canvas| canvas.0),
                    category: category.to_string(),
                    partitions: Vec::new(),
                    of: None,
                }),
                EventSource::Category { canvas, category, partition: Some(partition) } => {
                    partitioned.entry((canvas, category, partition.of)).or_default().push(partition);
                }
                EventSource::Stream(StreamId { canvas, category, name }) => wires.push(Wire::Stream {
                    canvas: canvas.0,
                    category: category.to_string(),
                    stream: name.to_string(),
                }),
            }
        }
        wires.extend(partitioned.into_iter().map(|((canvas, category, of), partitions)| Wire::Category {
            canvas: canvas.map(|canvas| canvas.0),
            category: category.to_string(),
            partitions: partitions.into_iter().map(Partition::label).collect(),
            of: Some(of.get()),
        }));
        // Only strings and numbers: serialization cannot fail.
        serde_json::to_string(&wires).unwrap_or_default()
    }

    /// Parses what [`to_json`](Self::to_json) returns.
    pub fn from_json(text: &str) -> Result<Self, InvalidSource> {
        let wires: Vec<Wire> =
            serde_json::from_str(text).map_err(|error| InvalidSource::Json(error.to_string()))?;
        let mut sources = Vec::new();
        for wire in wires {
            match wire {
                Wire::Log { canvas } => sources.push(EventSource::Log { canvas: canvas.map(CanvasId) }),
                Wire::Category { canvas, category, partitions, of } => {
                    sources.extend(category_sources(
                        canvas.map(CanvasId),
                        category.parse()?,
                        &partitions,
                        of,
                    )?);
                }
                Wire::Stream { canvas, category, stream } => {
                    let name: StreamName = stream.parse()?;
                    let category = category.parse()?;
                    sources.push(EventSource::Stream(StreamId { canvas: CanvasId(canvas), category, name }));
                }
            }
        }
        sources.sort();
        sources.dedup();
        Ok(Self(sources))
    }
}

fn category_sources(
    canvas: Option<CanvasId>,
    category: Category,
    partitions: &[String],
    of: Option<u16>,
) -> Result<Vec<EventSource>, InvalidSource> {
    let source = |partition| EventSource::Category { canvas, category: category.clone(), partition };
    let Some(of) = of else {
        return if partitions.is_empty() {
            Ok(vec![source(None)])
        } else {
            Err(InvalidSource::Json("partitions without `of`, the number of all partitions".to_owned()))
        };
    };
    let partition = |label: &String| {
        let number = u16::from_str_radix(label, 16).ok()?;
        Partition::new(number, of).map(|partition| source(Some(partition)))
    };
    let no_partition = |label: &String| InvalidSource::Json(format!("{label:?} is not a partition of {of}"));
    partitions.iter().map(|label| partition(label).ok_or_else(|| no_partition(label))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(numbers: impl IntoIterator<Item = u16>) -> SourceList {
        let companies = EventSource::category("companies").unwrap();
        let of = |number| companies.partition(Partition::new(number, 15).unwrap()).unwrap();
        SourceList(numbers.into_iter().map(of).collect())
    }

    // Shows: SUB-29
    #[test]
    fn sources_are_written_as_the_table_shows_them() {
        let contacts = SourceList(vec![EventSource::category("contacts").unwrap()]);
        for (list, json) in [
            (
                partitions(1..=8),
                r#"[{"type":"category","category":"companies","partitions":["1","2","3","4","5","6","7","8"],"of":15}]"#,
            ),
            (
                partitions(9..=15),
                r#"[{"type":"category","category":"companies","partitions":["9","a","b","c","d","e","f"],"of":15}]"#,
            ),
            (contacts, r#"[{"type":"category","category":"contacts"}]"#),
            (SourceList::default(), "[]"),
            (SourceList(vec![EventSource::Log { canvas: None }]), r#"[{"type":"log"}]"#),
        ] {
            assert_eq!(list.to_json(), json);
            assert_eq!(SourceList::from_json(json), Ok(list));
        }
    }

    #[test]
    fn every_source_is_read_as_it_was_written() {
        let canvas = CanvasId(Uuid::now_v7());
        let companies = EventSource::category("companies").unwrap();
        let sources = [
            EventSource::Log { canvas: None },
            EventSource::Log { canvas: Some(canvas) },
            companies.clone(),
            companies.clone().on(canvas),
            companies.partition(Partition::new(15, 16).unwrap()).unwrap().on(canvas),
            EventSource::Stream(StreamId::new(canvas, "companies", "company:7").unwrap()),
        ];
        for source in &sources {
            assert_eq!(source.to_string().parse::<EventSource>().as_ref(), Ok(source));
        }
        let mut sorted = sources.to_vec();
        sorted.sort();
        assert_eq!(SourceList::from_json(&SourceList(sources.to_vec()).to_json()), Ok(SourceList(sorted)));
    }

    #[test]
    fn rejects_invalid_sources() {
        for text in [
            "",
            "logs",
            "category",
            "category/",
            "category/a b",
            "category/a/0-of-3",
            "category/a/4-of-3",
            "category/a/03-of-f",
            "category/a/3",
            "stream/x/y/z",
            "canvas/x/log",
            "log/",
            "category/a/1-of-401",
        ] {
            assert!(text.parse::<EventSource>().is_err(), "{text:?}");
        }
        for json in [
            "{}",
            r#"[{"type":"topic"}]"#,
            r#"[{"type":"category","category":"a","partitions":["1"]}]"#,
            r#"[{"type":"category","category":"a","partitions":["g"],"of":15}]"#,
            r#"[{"type":"category","category":"a","partitions":["10"],"of":15}]"#,
        ] {
            assert!(SourceList::from_json(json).is_err(), "{json}");
        }
    }

    // Shows: SUB-34
    #[test]
    fn every_stream_is_in_one_partition() {
        for number in 0..1_000 {
            let stream = StreamId::new(CanvasId::DEFAULT, "companies", &format!("c-{number}")).unwrap();
            for of in [1, 2, 7, 16, 1024] {
                assert_eq!(Partition::all(of).into_iter().filter(|one| one.has(&stream)).count(), 1);
            }
        }
    }
}
