variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of the pool: that of the database."
  type        = string
}

variable "name" {
  description = "Name of the pool."
  type        = string
  default     = "wakeq-workers"
}

variable "image" {
  description = "Your image with the handlers (docs/container.md), preferably by digest."
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

variable "urgent_subscription" {
  description = "Name of the subscription to urgent notifications, if there is one: WAKEQ_URGENT_SUBSCRIPTION."
  type        = string
  default     = null
}

variable "database" {
  description = "Connection name and secret of the database, from the outputs of `database`."
  type        = object({ connection_name = string, secret = string })
}

variable "network" {
  description = "The network from which the database is reached."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork of the instances."
  type        = string
}

variable "instances" {
  description = "Initial number of instances; change it later with `gcloud run worker-pools update` or an autoscaler. Use two or more, so that others take over when a worker dies."
  type        = number
  default     = 2
}

variable "capacity" {
  description = "Handlers that one instance runs at a time: WAKEQ_CAPACITY."
  type        = number
  default     = 64
}

variable "urgent_slots" {
  description = "How many of them are kept for urgent events: WAKEQ_URGENT_SLOTS."
  type        = number
  default     = 0
}

variable "limits" {
  description = "CPU and memory of an instance."
  type        = map(string)
  default     = { cpu = "1", memory = "512Mi" }
}

variable "env" {
  description = "Additional environment variables: docs/settings.md, and those of the handlers."
  type        = map(string)
  default     = {}
}

variable "secrets" {
  description = "Environment variables from Secret Manager: variable name to secret id. The account must be able to read the secrets."
  type        = map(string)
  default     = {}
}

variable "egress" {
  description = "PRIVATE_RANGES_ONLY, or ALL_TRAFFIC to send everything through the network."
  type        = string
  default     = "PRIVATE_RANGES_ONLY"
}

variable "launch_stage" {
  description = "BETA if the region or the provider's version still requires it; GA otherwise."
  type        = string
  default     = "GA"
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the pool."
  type        = bool
  default     = true
}
