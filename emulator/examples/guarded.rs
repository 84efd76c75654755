//! Holds a guarded child that has a child of its own, and a guarded folder, until it is killed.
//! `cargo run -p wakeq-emulator --example guarded -- FOLDER`

use wakeq_emulator::{Guard, Launch};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("which folder may go with this process?")?;
    let guard = Guard::new(Some(folder.as_ref()))?;
    let family = Launch::new("sh").argument("-c").argument("sleep 1000 & echo $!; wait");
    let child =
        guard.start(family.current_folder(&folder).on_line(|grandchild| eprintln!("{grandchild}")))?;
    eprintln!("{}", child.pid());
    child.ended().await;
    Ok(())
}
