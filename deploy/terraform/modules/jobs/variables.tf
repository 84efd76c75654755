variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the jobs run: the region of the database."
  type        = string
}

variable "name" {
  description = "What the jobs' names begin with."
  type        = string
  default     = "wakeq"
}

variable "image" {
  description = "The image of `wakeq` of the release that is about to be started."
  type        = string
}

variable "migrate_account" {
  description = "Address of the account that changes the schema."
  type        = string
}

variable "doctor_account" {
  description = "Address of the account whose rights the doctor looks at: the workers', in push mode the service's."
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

variable "database" {
  description = "Where the database is, and the secret of its owner: of the outputs of `database`."
  type        = object({ connection_name = string, secret = string })
}

variable "doctor_secret" {
  description = "The secret of the processes that the doctor is about, which its account has to be able to read."
  type        = string
}

variable "api_roles" {
  description = "Roles of the database that get the rights of the API with each migration."
  type        = list(string)
  default     = []
}

variable "worker_roles" {
  description = "Roles of the database that get the rights of workers with each migration; in push mode those of the service."
  type        = list(string)
  default     = []
}

variable "network" {
  description = "The network from which the database is reached."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork whose addresses the jobs take."
  type        = string
}

variable "env" {
  description = "Further variables; in push mode WAKEQ_HORIZON=0s, as the service has it."
  type        = map(string)
  default     = {}
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the jobs."
  type        = bool
  default     = false
}

variable "doctor_secrets" {
  description = "Variables of the doctor from Secret Manager: name of the variable to id of the secret, which its account must be able to read."
  type        = map(string)
  default     = {}
}
