//! An emulator for one test, whose time is limited.

use std::io;
use std::ops::Deref;

use wakeq_emulator::{Emulator, Options};
use wakeq_testbed::TestTime;

/// Stopped when it is dropped, and then its test's time ends, too.
#[derive(Debug)]
pub(crate) struct LimitedEmulator {
    emulator: Emulator,
    _time: TestTime,
}

impl LimitedEmulator {
    pub(crate) async fn start(options: Options) -> Self {
        Self::start_at("127.0.0.1:0", options).await.unwrap()
    }

    pub(crate) async fn start_at(address: &str, options: Options) -> io::Result<Self> {
        let time = TestTime::begin();
        Ok(Self { emulator: Emulator::start(address.parse().unwrap(), options).await?, _time: time })
    }

    pub(crate) async fn stop(self) {
        self.emulator.stop().await;
    }
}

impl Deref for LimitedEmulator {
    type Target = Emulator;

    fn deref(&self) -> &Emulator {
        &self.emulator
    }
}
