//! `wakeq wake`.

use clap::Args;

use crate::cli::progress::Progress;
use crate::cli::{Context, show};
use wakeq::Admin;

#[derive(Args)]
pub(crate) struct Wake {
    /// Make every runnable event due first: after a restore, or if notifications were lost
    #[arg(long)]
    all: bool,
}

impl Wake {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let store = context.store().await?;
        let notifier = context.notifier.connect(&store).await?;
        let admin = Admin::new(store, notifier);
        let so_far = || {
            let (due, woken) = admin.waking();
            format!("{} made due, {woken} woken so far", show::count(due, "event"))
        };
        let pass = Progress::on_stderr().watch(admin.wake(self.all), so_far).await?;
        if context.notifier.is_local() {
            return show::line(
                "due; the worker process wakes the events with its next pass, within a minute",
            );
        }
        let woken = show::count(pass.woken as u64, "overdue event");
        let jobs = show::count(pass.jobs as u64, "resume job");
        let ticks = show::count(pass.ticks as u64, "event");
        show::line(format_args!("{woken} woken, {jobs} continued, {ticks} of crons emitted"))
    }
}
