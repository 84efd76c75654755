//! The form of the file, its folder, and the thread that writes it.

#[cfg(unix)]
mod full;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::DataFile;
use super::frames::{self, FIRST_LINE, FormError, Frames, Next};
use super::journal::{Journal, Position};
use super::records;
use crate::broker::{Broker, Change, Faults, Held, Message, RevisionRange, Saved, SchemaMark, Time};
use crate::proto::pubsub::{self, Encoding};

const TOPIC: &str = "projects/p/topics/orders";
const SUBSCRIPTION: &str = "projects/p/subscriptions/worker";

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pubsub-emulator-{name}-{}", std::process::id()));
        let _earlier = fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn sample() -> Vec<u8> {
    let mut bytes = FIRST_LINE.to_vec();
    for content in ["first", "", "the third"] {
        frames::push(&mut bytes, |bytes| bytes.extend(content.as_bytes())).unwrap();
    }
    bytes
}

/// What a file has, and how far it is sound.
fn read(bytes: &[u8]) -> Result<(Vec<String>, u64), FormError> {
    let Some(mut frames) = Frames::open(bytes, bytes.len() as u64)? else { return Ok((Vec::new(), 0)) };
    let mut contents = Vec::new();
    while let Next::Frame(content) = frames.read()? {
        contents.push(String::from_utf8(content).unwrap());
    }
    Ok((contents, frames.sound()))
}

#[test]
fn wherever_it_is_torn_everything_before_that_is_read() {
    let bytes = sample();
    let whole = [0, FIRST_LINE.len(), FIRST_LINE.len() + 17, FIRST_LINE.len() + 29, bytes.len()];
    for end in 0..=bytes.len() {
        let (contents, sound) = read(&bytes[..end]).unwrap();
        let expected = whole.iter().rposition(|whole| *whole <= end).unwrap();
        assert_eq!(sound, whole[expected] as u64, "cut at {end}");
        assert_eq!(contents, ["first", "", "the third"][..expected.saturating_sub(1)], "cut at {end}");
    }
}

#[test]
fn blank_bytes_after_a_loss_of_power_are_as_none() {
    let mut bytes = sample();
    let sound = bytes.len() as u64;
    for count in [1, 11, 12, 4_096, 100_000] {
        bytes.truncate(sound as usize);
        bytes.resize(sound as usize + count, 0);
        assert_eq!(read(&bytes).unwrap().1, sound, "{count} bytes");
    }
}

#[test]
fn a_byte_that_is_not_as_it_was_written_is_found() {
    let bytes = sample();
    let last = FIRST_LINE.len() + 29;
    for at in FIRST_LINE.len()..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            match read(&damaged) {
                // It can't be told from one that was torn.
                Ok((contents, sound)) => {
                    assert!(at >= last + 8, "byte {at}, bit {bit}");
                    assert_eq!((contents.len(), sound), (2, last as u64));
                }
                Err(FormError::Damaged(where_it_is)) => assert!(where_it_is <= at as u64, "byte {at}"),
                Err(error) => panic!("byte {at}, bit {bit}: {error}"),
            }
        }
    }
}

#[test]
fn leftovers_of_a_killed_process_are_removed() {
    for left in [&FIRST_LINE[..0], &FIRST_LINE[..9], &sample()[..], &sample()[..40], &[0; 100][..]] {
        let folder = Folder::new("left");
        let (mut file, _) = DataFile::open(&folder.0).unwrap();
        file.append(&frame(vec![topic(TOPIC)])).unwrap();
        drop(file);
        fs::write(folder.0.join("data.new"), left).unwrap();
        assert_eq!(topics(&folder.0), [TOPIC]);
        assert!(!folder.0.join("data.new").exists());
        // As if the process had ended before there was a file.
        fs::rename(folder.file(), folder.0.join("elsewhere")).unwrap();
        fs::write(folder.0.join("data.new"), left).unwrap();
        assert!(topics(&folder.0).is_empty());
        assert!(!folder.0.join("data.new").exists());
    }
}

/// The disk is full, then it can't sync, then the file can't take the other one's place.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_can_t_be_written_anew_stays_in_use_and_leaves_nothing_beside_it() {
    let folder = Folder::new("unreplaced");
    let (mut file, _) = DataFile::open(&folder.0).unwrap();
    let other = "projects/q/topics/orders";
    let new = folder.0.join("data.new");
    for (number, device) in ["/dev/full", "/dev/null"].into_iter().enumerate() {
        std::os::unix::fs::symlink(device, &new).unwrap();
        file.replace(std::iter::once(vec![topic("projects/p/topics/new")])).unwrap_err();
        assert!(fs::symlink_metadata(&new).is_err(), "{device}: {}", new.display());
        let name = if number == 0 { TOPIC } else { other };
        file.append(&frame(vec![topic(name)])).unwrap();
    }
    fs::rename(folder.file(), folder.0.join("elsewhere")).unwrap();
    fs::create_dir(folder.file()).unwrap();
    file.replace(std::iter::once(vec![topic("projects/p/topics/new")])).unwrap_err();
    assert!(!new.exists());
    fs::remove_dir(folder.file()).unwrap();
    fs::rename(folder.0.join("elsewhere"), folder.file()).unwrap();
    file.append(&frame(vec![topic("projects/r/topics/orders")])).unwrap();
    drop(file);
    assert_eq!(topics(&folder.0), [TOPIC, other, "projects/r/topics/orders"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_said_to_whoever_waits() {
    let folder = Folder::new("no-space");
    fs::create_dir_all(&folder.0).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let journal = Journal::start(DataFile::on(&folder.0, full).unwrap()).unwrap();
    let mut broker = Broker::new(Faults::default());
    broker.note_changes();
    broker.forget_everything();
    let reason = journal.written(journal.add(&broker)).await.unwrap_err();
    assert!(reason.contains("No space left on device"), "{reason}");
    assert_eq!(journal.room().await.unwrap_err(), reason);
}

#[test]
fn other_files_are_not_touched() {
    for (content, words) in [
        ("[package]\nname = \"something\"\n", "is not a file of this emulator"),
        ("pubsub-emulator data 2\n…", "another version (`pubsub-emulator data 2`)"),
    ] {
        let folder = Folder::new("other");
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.file(), content).unwrap();
        fs::write(folder.0.join("data.new"), content).unwrap();
        let said = DataFile::open(&folder.0).unwrap_err().to_string();
        assert!(said.contains(words) && said.contains(&*folder.file().to_string_lossy()), "{said}");
        for file in ["data", "data.new"] {
            assert_eq!(fs::read_to_string(folder.0.join(file)).unwrap(), content, "{file}");
        }
    }
}

#[test]
fn a_file_is_no_folder_and_a_folder_has_one_user() {
    let folder = Folder::new("used");
    let (first, _) = DataFile::open(&folder.0).unwrap();
    let said = DataFile::open(&folder.0).unwrap_err().to_string();
    assert!(said.contains("another emulator uses this folder"), "{said}");
    let said = DataFile::open(&folder.file()).unwrap_err().to_string();
    assert!(said.contains("needs a folder"), "{said}");
    drop(first);
    DataFile::open(&folder.0).unwrap();
}

#[test]
fn a_torn_change_is_cut_off_and_the_next_follows_the_last_whole_one() {
    let folder = Folder::new("torn");
    let (mut file, _) = DataFile::open(&folder.0).unwrap();
    file.append(&frame(vec![topic(TOPIC)])).unwrap();
    let sound = file.length();
    let torn = frame(vec![topic("projects/p/topics/torn")]);
    file.append(&torn[..torn.len() - 1]).unwrap();
    drop(file);

    let (mut file, _) = DataFile::open(&folder.0).unwrap();
    assert_eq!((file.length(), fs::metadata(folder.file()).unwrap().len()), (sound, sound));
    file.append(&frame(vec![topic("projects/q/topics/orders")])).unwrap();
    drop(file);
    assert_eq!(topics(&folder.0), [TOPIC, "projects/q/topics/orders"]);
}

#[test]
fn every_change_is_read_as_it_was_written() {
    let name: Arc<str> = TOPIC.into();
    let changes = vec![
        topic(TOPIC),
        Change::Subscription {
            serial: 2,
            topic: 1,
            config: Box::new(pubsub::Subscription { name: SUBSCRIPTION.to_owned(), ..Default::default() }),
        },
        Change::Topic {
            number: 1,
            first_kept: 7,
            revisions: RevisionRange { first: Some(3), last: None },
            config: Box::default(),
        },
        Change::Revision { schema: 3, number: 4, config: Box::default() },
        Change::RevisionGone { schema: "projects/p/schemas/order".into(), number: 3 },
        Change::Snapshot { topic: 1, made: Time::from_secs(7), config: Box::default() },
        Change::Contents { snapshot: "s".into(), messages: vec![1, u64::MAX] },
        Change::Policy { resource: name.clone(), policy: Box::default() },
        Change::Gone(name.clone()),
        Change::Published {
            topic: name.clone(),
            kept: true,
            snapshots: vec!["s".into()],
            messages: vec![message(5)],
        },
        Change::Messages(vec![message(6), message(7)]),
        Change::Messages(vec![
            marked(8, 3, Encoding::Json),
            marked(9, 4, Encoding::Binary),
            message(10),
            marked(11, 3, Encoding::Binary),
            marked(12, 3, Encoding::Json),
        ]),
        Change::Kept { topic: name, messages: vec![6] },
        Change::Held { subscription: 2, messages: vec![6, 7], held: Held::Pending { failures: 3 } },
        Change::Held { subscription: 2, messages: vec![6], held: Held::Settled },
        Change::Held { subscription: 2, messages: vec![7], held: Held::Gone },
        Change::Numbers { message: 7, resource: 2, policy: 1 },
        Change::Emptied,
    ];
    let mut bytes = Vec::new();
    records::encode(&mut bytes, changes.clone());
    assert_eq!(records::decode(&bytes).unwrap(), changes);
    bytes.extend([0x0a, 0x00]);
    assert!(records::decode(&bytes).is_err(), "a record of a kind that is not known");
}

#[test]
fn a_state_is_split_into_parts_that_have_each_message_once() {
    let with_marks = (25_000..50_000).map(|id| marked(id, 3, Encoding::Json));
    let messages: Vec<_> = (0..25_000).map(message).chain(with_marks).collect();
    let ids = messages.iter().map(|message| message.id).collect();
    let state = vec![
        Change::Messages(messages.clone()),
        Change::Messages(messages),
        Change::Held { subscription: 2, messages: ids, held: Held::Settled },
    ];
    let needed = records::size(&state);
    let parts: Vec<_> = records::parts(state).collect();
    assert!(parts.len() > 3, "{}", parts.len());
    let count = |change: &Change| if let Change::Messages(messages) = change { messages.len() } else { 0 };
    assert_eq!(parts.iter().flatten().map(count).sum::<usize>(), 50_000);
    let written: usize = parts.into_iter().map(|part| frame(part).len()).sum();
    assert!(written as u64 <= needed && needed < 2 * written as u64, "{written} of {needed}");
}

#[tokio::test]
async fn the_file_does_not_keep_what_is_out_of_date() {
    let folder = Folder::new("anew");
    let (file, _) = DataFile::open(&folder.0).unwrap();
    let journal = Journal::start(file).unwrap();
    let now = Time::from_secs(1_700_000_000);
    let mut broker = Broker::new(Faults::default());
    broker.note_changes();
    broker.create_topic(now, pubsub::Topic { name: TOPIC.to_owned(), ..Default::default() }).unwrap();
    let subscription =
        pubsub::Subscription { name: SUBSCRIPTION.to_owned(), topic: TOPIC.to_owned(), ..Default::default() };
    broker.create_subscription(now, subscription).unwrap();
    publish(&mut broker, now, "stays".to_owned());
    broker.pull(now, &pull()).unwrap();
    let mut longest = 0;
    for _ in 0..100 {
        publish(&mut broker, now, "x".repeat(100_000));
        let received = broker.pull(now, &pull()).unwrap().received_messages;
        let ack_ids = received.into_iter().map(|received| received.ack_id).collect();
        let request = pubsub::AcknowledgeRequest { subscription: SUBSCRIPTION.to_owned(), ack_ids };
        broker.acknowledge(now, &request).unwrap();
        journal.written(journal.add(&broker)).await.unwrap();
        longest = longest.max(fs::metadata(folder.file()).unwrap().len());
    }
    journal.close().await;
    assert!((1_000_000..2_500_000).contains(&longest), "of 10 million bytes, {longest} were there at once");

    let (_, saved) = DataFile::open(&folder.0).unwrap();
    let mut after = Broker::new(Faults::default());
    after.load(now, saved).unwrap();
    let received = after.pull(now, &pull()).unwrap().received_messages;
    let bodies: Vec<_> = received.into_iter().map(|received| received.message.unwrap().data).collect();
    assert_eq!(bodies, ["stays"]);
}

#[tokio::test]
async fn after_it_was_closed_nothing_counts_as_written() {
    let folder = Folder::new("closed");
    let (file, _) = DataFile::open(&folder.0).unwrap();
    let journal = Journal::start(file).unwrap();
    let mut broker = Broker::new(Faults::default());
    broker.note_changes();
    assert_eq!(journal.add(&broker), Position::default());
    broker.forget_everything();
    journal.written(journal.add(&broker)).await.unwrap();
    journal.close().await;
    broker.forget_everything();
    assert_eq!(&*journal.written(journal.add(&broker)).await.unwrap_err(), "the emulator has stopped");
}

fn topic(name: &str) -> Change {
    let config = Box::new(pubsub::Topic { name: name.to_owned(), ..Default::default() });
    Change::Topic { number: 1, first_kept: u64::MAX, revisions: RevisionRange::default(), config }
}

fn message(id: u64) -> Arc<Message> {
    Arc::new(Message {
        id,
        published: Time::from_secs(1_700_000_000),
        data: "body".into(),
        attributes: [("a".to_owned(), "b".to_owned())].into(),
        ordering_key: "key".to_owned(),
        schema: None,
    })
}

/// The same, validated with the revision of this number.
fn marked(id: u64, number: u64, encoding: Encoding) -> Arc<Message> {
    let mark = SchemaMark::new("projects/p/schemas/order".into(), "01234567".into(), number, encoding);
    Arc::new(Message { schema: Some(Arc::new(mark)), ..Message::clone(&message(id)) })
}

fn frame(changes: Vec<Change>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames::push(&mut bytes, |bytes| records::encode(bytes, changes)).unwrap();
    bytes
}

fn topics(folder: &Path) -> Vec<String> {
    let (_, saved): (DataFile, Saved) = DataFile::open(folder).unwrap();
    let mut broker = Broker::new(Faults::default());
    broker.load(Time::default(), saved).unwrap();
    broker.overview(Time::default()).topics.into_iter().map(|topic| topic.name).collect()
}

fn publish(broker: &mut Broker, now: Time, body: String) {
    let messages = vec![pubsub::PubsubMessage { data: body.into(), ..Default::default() }];
    broker.publish(now, pubsub::PublishRequest { topic: TOPIC.to_owned(), messages }).unwrap();
}

fn pull() -> pubsub::PullRequest {
    pubsub::PullRequest { subscription: SUBSCRIPTION.to_owned(), max_messages: 10, ..Default::default() }
}
