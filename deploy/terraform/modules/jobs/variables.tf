variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of the jobs: that of the database."
  type        = string
}

variable "name" {
  description = "Prefix of the jobs' names."
  type        = string
  default     = "wakeq"
}

variable "image" {
  description = "The `wakeq` image of the release to be deployed."
  type        = string
}

variable "migrate_account" {
  description = "Address of the account that migrates the schema."
  type        = string
}

variable "doctor_account" {
  description = "Address of the account whose permissions the doctor checks: the workers', in push mode the service's."
  type        = string
}

variable "topic" {
  description = "Name of the topic."
  type        = string
}

variable "subscription" {
  description = "Name of the subscription."
  type        = string
}

variable "urgent_subscription" {
  description = "Name of the subscription to urgent notifications, if there is one: WAKEQ_URGENT_SUBSCRIPTION."
  type        = string
  default     = null
}

variable "database" {
  description = "Connection name of the database and the secret of its owner, from the outputs of `database`."
  type        = object({ connection_name = string, secret = string })
}

variable "doctor_secret" {
  description = "The database secret of the processes that the doctor checks; the doctor's account must be able to read it."
  type        = string
}

variable "api_roles" {
  description = "Database roles to which each migration grants the rights of the API."
  type        = list(string)
  default     = []
}

variable "worker_roles" {
  description = "Database roles to which each migration grants the rights of workers; in push mode the role of the service."
  type        = list(string)
  default     = []
}

variable "network" {
  description = "The network from which the database is reached."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork of the jobs."
  type        = string
}

variable "env" {
  description = "Additional environment variables; in push mode WAKEQ_HORIZON=0s, as for the service."
  type        = map(string)
  default     = {}
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the jobs."
  type        = bool
  default     = false
}

variable "doctor_secrets" {
  description = "The doctor's environment variables from Secret Manager: variable name to secret id. Its account must be able to read the secrets."
  type        = map(string)
  default     = {}
}
