//! 10xx environment, 11xx arguments, 12xx rank tables, 13xx command line, 14xx versions.

super::codes! {
    1001 ENV_VALUE NoEffect hccl 1 ei 1
        "an environment variable has a value outside what it allows"
        "set it to one of the allowed values, or unset it; `aicpu-ts env` prints what is in force"
}
