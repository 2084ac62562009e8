//! Both rings on plain memory, against consumers and producers written by hand.

#[path = "rings/completion.rs"]
mod completion;
mod fake;
#[path = "rings/model.rs"]
mod model;
#[path = "rings/submission.rs"]
mod submission;
