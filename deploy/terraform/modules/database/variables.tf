variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of the instance and its secrets: that of the processes."
  type        = string
}

variable "name" {
  description = "Name of the instance. A deleted name can't be reused for a week."
  type        = string
  default     = "wakeq"
}

variable "network" {
  description = "Id of a network with private services access: `network` of the module `network`."
  type        = string
}

variable "clients" {
  description = "The service accounts that may connect, under keys of your choice: the address of each and its role (owner, api or worker)."
  type        = map(object({ account = string, role = string }))

  validation {
    condition     = alltrue([for client in var.clients : contains(["owner", "api", "worker"], client.role)])
    error_message = "The role must be owner, api or worker."
  }
}

variable "database_version" {
  description = "Postgres 15 or newer."
  type        = string
  default     = "POSTGRES_17"

  validation {
    condition     = can(regex("^POSTGRES_(1[5-9]|[2-9][0-9])$", var.database_version))
    error_message = "wakeq needs Postgres 15 or newer: POSTGRES_15, POSTGRES_16, POSTGRES_17 …"
  }
}

variable "edition" {
  description = "ENTERPRISE or ENTERPRISE_PLUS."
  type        = string
  default     = "ENTERPRISE"
}

variable "tier" {
  description = "The machine tier. The load is mostly writes, which need CPU and disk throughput."
  type        = string
  default     = "db-custom-2-7680"
}

variable "availability_type" {
  description = "REGIONAL has a synchronous standby in another zone, so a failover loses no event. ZONAL costs half as much."
  type        = string
  default     = "REGIONAL"
}

variable "database" {
  description = "The database. `wakeq migrate` creates the schema `wakeq` in it and changes nothing else."
  type        = string
  default     = "wakeq"
}

variable "user" {
  description = "The role that owns the schema and runs migrations. The roles of the API and the workers are named after it, with the suffixes _api and _worker."
  type        = string
  default     = "wakeq"
}

variable "password_version" {
  description = "Increment it to change the passwords; then restart the processes."
  type        = number
  default     = 1
}

variable "flags" {
  description = "Additional database flags, or a different idle_in_transaction_session_timeout."
  type        = map(string)
  default     = {}
}

variable "backup_start_time" {
  description = "When the daily backup starts, in UTC."
  type        = string
  default     = "03:00"
}

variable "backup_location" {
  description = "Region or multi-region of the backups; null lets Google choose."
  type        = string
  default     = null
}

variable "retained_backups" {
  description = "How many daily backups are kept."
  type        = number
  default     = 14
}

variable "recovery_days" {
  description = "How many days back point-in-time recovery reaches; at most 7 in ENTERPRISE."
  type        = number
  default     = 7
}

variable "maintenance" {
  description = "When Google may restart the instance: day (1 is Monday) and hour, in UTC. Workers reconnect automatically."
  type        = object({ day = number, hour = number })
  default     = { day = 7, hour = 4 }
}

variable "deletion_protection" {
  description = "Whether Terraform and Google refuse to delete the instance."
  type        = bool
  default     = true
}
