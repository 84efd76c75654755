variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the instance and its secret are: the region of the processes."
  type        = string
}

variable "name" {
  description = "What the instance is called. A name that was deleted can't be used again for a week."
  type        = string
  default     = "wakeq"
}

variable "network" {
  description = "Id of a network with private services access: `network` of the module `network`."
  type        = string
}

variable "clients" {
  description = "The service accounts that may connect, by names of your choice: their addresses, and as which role each does (owner, api or worker)."
  type        = map(object({ account = string, role = string }))

  validation {
    condition     = alltrue([for client in var.clients : contains(["owner", "api", "worker"], client.role)])
    error_message = "a client connects as owner, api or worker"
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
  description = "The machine. Events are written: processors and disk are what they need."
  type        = string
  default     = "db-custom-2-7680"
}

variable "availability_type" {
  description = "REGIONAL has a standby in another zone, written synchronously: a failover loses no event. ZONAL is half the price."
  type        = string
  default     = "REGIONAL"
}

variable "database" {
  description = "The database. The schema `wakeq` is made in it by `wakeq migrate`, and touches nothing else."
  type        = string
  default     = "wakeq"
}

variable "user" {
  description = "The role that owns the schema and migrates. Those of the API and the workers have this name with _api and _worker."
  type        = string
  default     = "wakeq"
}

variable "password_version" {
  description = "Add one to change the password; processes have to be started again to take it."
  type        = number
  default     = 1
}

variable "flags" {
  description = "Further database flags, and another idle_in_transaction_session_timeout."
  type        = map(string)
  default     = {}
}

variable "backup_start_time" {
  description = "When the daily backup begins, in UTC."
  type        = string
  default     = "03:00"
}

variable "backup_location" {
  description = "A region or multi-region for the backups; null is Google's choice."
  type        = string
  default     = null
}

variable "retained_backups" {
  description = "How many daily backups are kept."
  type        = number
  default     = 14
}

variable "recovery_days" {
  description = "How far back any moment can be restored; 7 days at most in ENTERPRISE."
  type        = number
  default     = 7
}

variable "maintenance" {
  description = "When Google may restart the instance: day (1 is Monday) and hour, in UTC. Workers reconnect by themselves."
  type        = object({ day = number, hour = number })
  default     = { day = 7, hour = 4 }
}

variable "deletion_protection" {
  description = "Whether Terraform and Google refuse to delete the instance."
  type        = bool
  default     = true
}
