//! What a page asks the API, which decides about the answer.

use wakeq::CanvasId;

/// A question. Its text has the rights of whoever asks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    about: About,
    text: String,
}

/// What a question is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum About {
    Platform,
    Canvas(CanvasId),
}

impl Question {
    /// About a canvas, or about the platform if there is none.
    pub(super) fn new(canvas: Option<CanvasId>, text: String) -> Self {
        Self { about: canvas.map_or(About::Platform, About::Canvas), text }
    }

    pub(super) fn about(&self) -> About {
        self.about
    }

    /// The bytes of its text, which tenants choose a part of.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Whether a change of a canvas may change the answer, or one of the platform if there is none.
    /// What is about the platform counts every canvas.
    pub(super) fn depends_on(&self, changed: Option<CanvasId>) -> bool {
        match (self.about, changed) {
            (About::Canvas(own), Some(changed)) => own == changed,
            (About::Platform, _) | (_, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_answer_about_a_canvas_depends_on_no_other_one() {
        let canvas = |number| Some(CanvasId(Uuid::from_u128(number)));
        let depends = |own, changed| Question::new(own, "/v1".to_owned()).depends_on(changed);
        assert!(depends(canvas(1), canvas(1)) && !depends(canvas(1), canvas(2)));
        assert!(depends(canvas(1), None) && depends(None, canvas(1)) && depends(None, None));
    }
}
