//! A resolver with the answers that a test sets, which records the names it was asked for.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use async_trait::async_trait;
use wakeq_service::delivery::Resolve;

/// Each name with its answers: one after the other, then the last one repeatedly.
#[derive(Debug, Default)]
pub(super) struct Names {
    answers: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    /// Sets the answers for a name, each of which is a comma-separated list of addresses.
    pub(super) fn set(&self, name: &str, answers: &[&str]) {
        let read = |answer: &&str| {
            let addresses = answer.split(',').map(str::trim).filter(|address| !address.is_empty());
            addresses.map(|address| address.parse().unwrap()).collect()
        };
        self.answers.lock().unwrap().insert(name.to_owned(), answers.iter().map(read).collect());
    }

    /// The names that were asked for, in order.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answers = answers.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        next.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
