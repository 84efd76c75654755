variable "project" {
  description = "Id of the project."
  type        = string
}

variable "region" {
  description = "Region of the secret: that of the processes."
  type        = string
}

variable "name" {
  description = "Prefix of its name."
  type        = string
  default     = "wakeq"
}

variable "readers" {
  description = "Addresses of the service accounts that register targets and sign deliveries, keyed by any name."
  type        = map(string)
}
