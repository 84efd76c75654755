//! Parses requests to emit into events. Pure: no I/O and no clock.
//!
//! The canvas is always that of the path: no header or body can name another one.

use super::cloudevents::{self, Keep};
use super::emission::{Draft, Emission, Headers};
use super::media::MediaType;
use super::plain;
use crate::resources::emit::wire::json;
use crate::resources::emit::wire::refusal::{Fault, Refusal};
use wakeq::CanvasId;
use wakeq::order::ObjectKey;

/// Any of the required attributes distinguishes a CloudEvent in binary mode from plain JSON.
const MARKS: [&str; 4] = ["ce-specversion", "ce-id", "ce-source", "ce-type"];

/// The parts of a request that say what to emit.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    /// The canvas of the path.
    pub(super) canvas: CanvasId,
    /// Whether the path is the one for batches.
    pub(super) batch: bool,
    /// The part of a CloudEvent to keep.
    pub(super) keep: Keep,
    pub(super) headers: Headers<'a>,
    pub(super) body: &'a [u8],
}

/// Parses a request: plain JSON, or CloudEvents in any of their three modes.
pub(super) fn read(incoming: &Incoming<'_>) -> Result<Emission, Refusal> {
    let Incoming { canvas, batch, keep, headers, body } = *incoming;
    let draft = Draft { canvas, trace: headers.trace() };
    let media = headers.one("content-type")?.map(MediaType::parse).transpose()?;
    match &media {
        Some(media) if media.is("application", "cloudevents-batch+json") => {
            media.check_charset()?;
            Ok(Emission::Batch(cloudevents::batch(json::text(body)?, keep, &draft)?))
        }
        Some(media) if media.is("application", "cloudevents+json") && !batch => {
            media.check_charset()?;
            Ok(Emission::One(Box::new(cloudevents::structured(json::text(body)?, keep, &draft)?)))
        }
        Some(media) if media.is_cloud_event() => Err(Fault::MediaType(if batch {
            "a batch of CloudEvents is application/cloudevents-batch+json"
        } else {
            "the only supported format of CloudEvents is JSON: application/cloudevents+json or \
             application/cloudevents-batch+json"
        })
        .into()),
        _ if MARKS.iter().any(|mark| headers.all(mark).next().is_some()) => {
            if batch {
                return Err(Fault::MediaType(
                    "the headers are those of one CloudEvent in binary mode: send it to …/events, or a batch as \
                     application/cloudevents-batch+json",
                )
                .into());
            }
            Ok(Emission::One(Box::new(cloudevents::binary(headers, media.as_ref(), body, keep, &draft)?)))
        }
        Some(media) if media.is("application", "json") => {
            media.check_charset()?;
            let text = json::text(body)?;
            if batch {
                Ok(Emission::Batch(plain::batch(text, &draft)?))
            } else {
                Ok(Emission::One(Box::new(plain::one(text, &draft)?)))
            }
        }
        Some(_) | None => Err(Fault::MediaType(
            "send `content-type: application/json`, or a CloudEvent (application/cloudevents+json, or ce- headers)",
        )
        .into()),
    }
}

/// Parses a request to change an object: plain JSON.
pub(super) fn read_change(object: &ObjectKey, incoming: &Incoming<'_>) -> Result<Emission, Refusal> {
    let Incoming { canvas, headers, body, .. } = *incoming;
    let draft = Draft { canvas, trace: headers.trace() };
    let media = headers.one("content-type")?.map(MediaType::parse).transpose()?;
    match &media {
        Some(media) if media.is("application", "json") => media.check_charset()?,
        Some(_) | None => return Err(Fault::MediaType("send `content-type: application/json`").into()),
    }
    Ok(Emission::On(Box::new(plain::change(json::text(body)?, object, &draft)?)))
}
