variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the pool runs: the region of the database."
  type        = string
}

variable "name" {
  description = "What the pool is called."
  type        = string
  default     = "wakeq-workers"
}

variable "image" {
  description = "An image of your own with the handlers (docs/container.md), best by its digest."
  type        = string
}

variable "account" {
  description = "Address of the account that the workers run as."
  type        = string
}

variable "topic" {
  description = "Name of the topic: WAKEQ_TOPIC."
  type        = string
}

variable "subscription" {
  description = "Name of the subscription: WAKEQ_SUBSCRIPTION."
  type        = string
}

variable "database" {
  description = "The outputs of `database`."
  type        = object({ connection_name = string, secret = string })
}

variable "network" {
  description = "The network from which the database is reached."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork whose addresses the instances take."
  type        = string
}

variable "instances" {
  description = "Instances at the beginning; later changes are made with `gcloud run worker-pools update`, or by a scaler. Two or more: a worker that dies is replaced by the others."
  type        = number
  default     = 2
}

variable "capacity" {
  description = "Handlers that one instance runs at a time: WAKEQ_CAPACITY."
  type        = number
  default     = 64
}

variable "limits" {
  description = "What an instance has."
  type        = map(string)
  default     = { cpu = "1", memory = "512Mi" }
}

variable "env" {
  description = "Further variables: docs/container.md, docs/operations.md, and what the handlers need."
  type        = map(string)
  default     = {}
}

variable "secrets" {
  description = "Variables from Secret Manager: name of the variable to id of the secret, which the account must be able to read."
  type        = map(string)
  default     = {}
}

variable "egress" {
  description = "PRIVATE_RANGES_ONLY, or ALL_TRAFFIC to send everything through the network."
  type        = string
  default     = "PRIVATE_RANGES_ONLY"
}

variable "launch_stage" {
  description = "BETA, where the region or the provider's version still asks for it; GA otherwise."
  type        = string
  default     = "GA"
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the pool."
  type        = bool
  default     = true
}
