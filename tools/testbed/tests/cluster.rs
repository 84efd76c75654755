//! Clusters of our own: they survive a kill, and leave nothing behind.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use wakeq_testbed::{
    Cluster, ClusterOptions, Folder, Postgres, PostgresError, Requested, remove_data_folder,
};

async fn answer(url: &str, query: &'static str) -> Option<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(query).fetch_optional(&mut connection).await.unwrap()
}

async fn cluster(options: ClusterOptions) -> Option<Cluster> {
    Cluster::start_or_skip(options, "a test of clusters").await.unwrap()
}

const HOLDS: &str = "WAKEQ_TEST_HOLDS_A_CLUSTER";

#[expect(clippy::disallowed_methods, reason = "the end of a stranger sends no signal")]
/// The end of a process that is not our child sends us no signal, so it is polled for, up to a
/// limit.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} after 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn what_was_committed_survives_a_kill() {
    let begin = Instant::now();
    let Some(mut cluster) = cluster(ClusterOptions::default()).await else { return };
    eprintln!("{cluster}: ready after {} ms", begin.elapsed().as_millis());
    let url = cluster.url("postgres");
    assert_eq!(answer(&url, "show fsync").await.as_deref(), Some("on"));
    answer(&url, "create table kept as select 'here' as word").await;
    let killed = cluster.pid();

    cluster.kill_9().await.unwrap();
    assert!(PgConnection::connect(&url).await.is_err());
    let begin = Instant::now();
    cluster.start_again().await.unwrap();
    eprintln!("started again after {} ms", begin.elapsed().as_millis());

    assert_ne!(cluster.pid(), killed);
    assert_eq!(cluster.url("postgres"), url);
    assert_eq!(answer(&url, "select word from kept").await.as_deref(), Some("here"));
    let folder = cluster.data_folder().to_owned();
    drop(cluster);
    assert!(!folder.parent().unwrap().exists());
}

// Shows: DEV-02
#[tokio::test]
async fn a_kept_folder_is_used_again_but_not_by_two() {
    let folder = std::env::temp_dir().join(format!("wakeq-kept-{}", std::process::id()));
    let options = ClusterOptions { folder: Folder::Persistent(folder.clone()), ..ClusterOptions::default() };
    let Some(first) = cluster(options.clone()).await else { return };
    answer(&first.url("postgres"), "create table kept as select 'here' as word").await;
    let stranger = format!("postgres://postgres@127.0.0.1:{}/postgres", first.port());
    assert!(PgConnection::connect(&stranger).await.is_err(), "a client without the password is kept out");
    let password = first.data_folder().join("wakeq.password");
    assert_eq!(std::fs::metadata(password).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = Cluster::start(options.clone()).await.unwrap_err();
    assert!(matches!(refused, PostgresError::AlreadyRunning { .. }), "{refused}");
    assert!(refused.to_string().contains(&first.port().to_string()), "{refused}");
    let refused = remove_data_folder(&folder).await.unwrap_err();
    assert!(matches!(refused, PostgresError::AlreadyRunning { .. }), "{refused}");

    first.stop().await.unwrap();
    let second = Cluster::start(options).await.unwrap();
    assert_eq!(answer(&second.url("postgres"), "select word from kept").await.as_deref(), Some("here"));
    let data = second.data_folder().to_owned();
    drop(second);
    assert!(data.join("PG_VERSION").exists());
    assert_eq!(
        remove_data_folder(&folder).await.unwrap().len(),
        if data.starts_with(&folder) { 1 } else { 2 }
    );
    assert!(!folder.exists() && !data.exists());
    assert!(remove_data_folder(&folder).await.unwrap().is_empty(), "nothing is left to remove");
}

// Shows: DEV-02
#[tokio::test]
async fn a_requested_but_missing_service_is_an_error_with_advice() {
    let choose = async |word: &str| {
        let requested = Requested::by_option("--postgres", word).unwrap();
        Postgres::choose(ClusterOptions::default(), Some(requested)).await.map(drop).unwrap_err()
    };
    if std::env::var_os("DATABASE_URL").is_none() {
        let refused = choose("env").await.to_string();
        assert!(refused.contains("--postgres env") && refused.contains("set it to postgres://"), "{refused}");
    }
    if !cfg!(feature = "containers") {
        let refused = choose("container").await.to_string();
        assert!(refused.contains("--features wakeq-testbed/containers"), "{refused}");
    }
}

/// The process that the next test kills: reports where its cluster is, on a channel that is not
/// captured.
#[tokio::test]
#[ignore = "runs only as another test's child"]
async fn holds_a_cluster_until_it_is_killed() {
    if std::env::var_os(HOLDS).is_some() {
        let Some(cluster) = cluster(ClusterOptions::default()).await else { return };
        writeln!(std::io::stderr(), "{}\n{}", cluster.data_folder().display(), cluster.pid()).unwrap();
        std::future::pending::<()>().await;
    }
}

#[test]
fn nothing_is_left_of_a_process_killed_with_9() {
    let mut parent = Command::new(std::env::current_exe().unwrap());
    parent.args(["--exact", "holds_a_cluster_until_it_is_killed", "--ignored"]).env(HOLDS, "1");
    let mut parent = parent.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(parent.stderr.take().unwrap()).lines().map(Result::unwrap);
    // A download says so first.
    let data = lines.find(|line| !line.starts_with("Postgres: ")).unwrap();
    if data.starts_with("SKIPPED") {
        parent.wait().unwrap();
        return;
    }
    let pid = lines.next().unwrap();
    let data = Path::new(&data);
    let process = Path::new("/proc").join(&pid);
    let pid_file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let shared_memory = pid_file.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    assert!(shared_memory_segments().contains(&shared_memory));

    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until("its folder is still there", || !data.parent().unwrap().exists());
    wait_until("its postmaster is still there", || !process.exists());
    assert!(!shared_memory_segments().contains(&shared_memory), "segment {shared_memory} survived");
}

fn shared_memory_segments() -> Vec<String> {
    let listed = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    listed.lines().filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect()
}
