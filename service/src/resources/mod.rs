//! The resources of the API, a folder each. `wire` is its JSON, which the server and the command
//! line both read and write; `routes` serves it; `command` has the commands and the client's calls;
//! `page` shows it in a browser.
//!
//! `wire` is plain data and conversions: no I/O, no decisions. The JSON of one of the queue's types
//! has that type's name and `Json` behind it; its schema has the name alone.

pub(crate) mod wire;

pub(crate) mod accounts {
    pub(crate) mod command;
    pub(crate) mod wire;
}

pub(crate) mod attempts {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod audit {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod batches {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod crons {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod dead_events {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod doctor {
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod emit {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod ended_events {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod entities {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod events {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod find {
    pub(crate) mod page;
}

pub(crate) mod groups {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod handlers {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod hooks {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod keys {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod limits {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod log {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod objects {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod operations {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod overview {
    pub(crate) mod page;
}

pub(crate) mod pulled {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod pulls {
    pub(crate) mod command;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod queues {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod quotas {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod statistics {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod switches {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
}

pub(crate) mod targets {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}

pub(crate) mod workers {
    pub(crate) mod command;
    pub(crate) mod page;
    pub(crate) mod routes;
    pub(crate) mod wire;
}
