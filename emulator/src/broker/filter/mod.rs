//! The filter language of subscriptions: what is written, parsed once, and asked of each message's attributes.
