//! The cost of the host, as lines of JSON: medians of repeated runs on the host's runtime. Its one
//! argument is the `fdguard` command, which keeps sessions from the warm interpreter; without it
//! Python is measured only cold.

mod abort;
mod archive;
mod figures;
mod output;
mod python;
mod sessions;

use std::path::PathBuf;

use fdguard_host::session::Hub;

/// Any error ends the run.
type Fails = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Fails {
    let keeper = std::env::args_os().nth(1).map(PathBuf::from);
    // The interpreter that starts it runs in another directory.
    let keeper = keeper.map(|path| path.canonicalize()).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // Measure in a task: the host works in tasks on its workers, not on the thread that waits for
    // them.
    runtime.block_on(async { tokio::spawn(measure(keeper)).await? })
}

async fn measure(keeper: Option<PathBuf>) -> Fails {
    let hub = Hub::open()?;
    sessions::lives(&hub).await?;
    sessions::commands(&hub).await?;
    output::rate(&hub).await?;
    python::cold(&hub).await?;
    if let Some(keeper) = keeper {
        python::warm(&hub, &keeper).await?;
    }
    abort::wakes().await?;
    archive::after_the_last_writer().await?;
    Ok(())
}
